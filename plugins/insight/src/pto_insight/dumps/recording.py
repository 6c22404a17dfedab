"""The recording of a run (``pto/abi/dump.h``), and its conversion to one file for each task.

The backend appends records to the file ``calls`` in the folder of the run. When the run has ended,
the records become the files of tasks, and ``calls`` is removed. If the process dies during the run,
``calls`` remains, and :func:`recover` converts it. A process locks ``calls`` while it writes or
converts the file.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from pto_core import log
from pto_core.cases.activity import core_name
from pto_core.cases.report import from_plain, to_plain
from pto_core.config import Config
from pto_core.errors import PtoError, UsageError
from pto_core.kernels import DataType
from pto_core.kernels.callables import file_digest
from pto_core.toolchain import BuildRequest
from pto_core.toolchain.toolchain import request_of
from pto_core.trust import reason_for_distrust
from pto_insight.dumps.selection import Selection, selects_tensor
from pto_insight.dumps.task_dump import (
    FAILED,
    RETURNED,
    UNFINISHED,
    UNKNOWN,
    DumpedArgument,
    TaskDump,
    stored_type,
)
from pto_insight.graphs import AccessLog, TaskGraph
from pto_insight.graphs.archive import Archive, read_archive, refusing_damage, write_archive
from pto_insight.graphs.measurement import task_and_block_of_id
from pto_insight.graphs.places import TAGS

CALLS, HASHES = "calls", "hashes"
LEVEL_ALL, LEVEL_HASHES = 3, 4
HASH = np.dtype("u8,u8,u4,u8,u8")
"""The hash of one argument of a call before and after it; 0 if it was not recorded."""
HASH.names = ("before", "after", "argument", "task", "bytes")
_KIND_OF_HASHES = "hashes of outputs 1"

# The layouts of pto/abi/dump.h.
_MAGIC = 0x31504D55444F5450
_HEADER = np.dtype("u8,u8,u8,u8,u4,u4")
_HEADER.names = ("magic", "first", "limit", "lost", "error", "names")
_RECORD = np.dtype("u8,u8,u8,u8,i4,u4,u4,u4,u4,u4,u4,u4")
_RECORD.names = (
    *("magic", "bytes", "task", "address", "func_id", "core", "phase", "is_together"),
    *("tensors", "name", "library", "payload"),
)
_TENSOR = np.dtype("u8,u8,u8,5u8,5u8,u8,u8,u4,u1,u1,u1,u1")
_TENSOR.names = (
    *("address", "buffer", "buffer_bytes", "shapes", "strides", "at", "bytes", "argument"),
    *("dtype", "ndims", "tag", "reserved"),
)
_DROPPED, _BEFORE, _AFTER, _AFTER_FAILURE = range(4)
_READ = ("INPUT", "NO_DEP")
_PAYLOAD_HEADER = 40
_NUM_ARGS, _RELATIVE_ARGS = np.s_[28:32], np.s_[32:40]
_CONTEXT_ARGS = 48


class DumpedRun:
    """The dump of a run that is about to start. As a context, it keeps the calls of a failed run.

    ``level`` and ``file`` are for the configuration of the run.
    """

    def __init__(self, folder: Path, selection: Selection, level: int, facts: dict[str, Any]):
        self.level = level
        self._folder = folder
        self._facts = facts
        self.file = str((folder / CALLS).absolute())
        names = b"".join(name.encode() + b"\0" for name in selection.recorded)
        text = json.dumps({**facts, "selection": selection.text}).encode()
        header = np.zeros(1, _HEADER)
        header["magic"], header["limit"], header["names"] = _MAGIC, facts["limit"], len(names)
        header["first"] = first = (_HEADER.itemsize + len(names) + len(text) + 7) // 8 * 8
        advice = "use another folder for the files of a run"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._calls = _locked(folder / CALLS, "ab")
            if self._calls is not None:
                self._calls.truncate(0)
                self._calls.write((header.tobytes() + names + text).ljust(first))
                self._calls.flush()
        except OSError as error:
            raise UsageError(
                f"{folder} cannot be written: {error}; {advice}", name="dump", value=str(folder)
            ) from error
        if self._calls is None:
            raise UsageError(
                f"another run writes its dump to {folder}; {advice}",
                name="dump",
                value=str(folder),
            )

    def finish(self, accesses: AccessLog | None) -> tuple[Path, ...]:
        """Write the files of the tasks, and return their paths. Raises UsageError."""
        try:
            return _converted(self._folder, accesses)
        except OSError as error:
            raise UsageError(
                f"the dump of the run was not written: {error}; use another folder",
                name="dump",
                value=str(self._folder),
            ) from error
        finally:
            assert self._calls is not None, "a run without the lock is refused"
            self._calls.close()

    def __enter__(self) -> DumpedRun:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        if error is None:
            return
        fields = getattr(error, "access_log", None)
        try:
            files = self.finish(None if fields is None else AccessLog.from_fields(fields))
        except PtoError as problem:
            error.add_note(problem.message)
            return
        if files and self.level != LEVEL_HASHES:
            error.add_note(f"the arrays of tasks are in {self._folder}: pto dump show FILE")


def begin_dump(
    folder: Path, selected: str, level: int, config: Config, run: int
) -> DumpedRun | None:
    """Prepare the dump of a run; return None if its number is not selected. Raises UsageError."""
    selection = Selection.of(selected).of_run(run)
    if selection is None:
        return None
    keys = ("backend", "runtime", "device")
    facts = {key: config[key] for key in keys} | {
        "run": run,
        "level": level,
        "limit": config["dump_limit_bytes"],
        "requests": {str(path): to_plain(request) for path, request in request_of.items()},
    }
    return DumpedRun(folder, selection, level, facts)


def recover(folder: Path) -> tuple[Path, ...]:
    """Convert the calls that a process left in a folder when it died; return the new files.

    The calls of a run that has not ended remain. Raises UsageError if others could write them, or
    if they are damaged.
    """
    file = folder / CALLS
    if not file.is_file():
        return ()
    if (distrust := reason_for_distrust(file)) is not None:
        raise UsageError(
            f"{file} is not converted, because a replay runs code that it names: {distrust}",
            name="dump",
            value=str(file),
        )
    calls = _locked(file, "r+b")
    if calls is None:
        return ()
    with calls, refusing_damage(file, "a recording of calls", "remove it"):
        return _converted(folder, None)


def _locked(calls: Path, mode: str) -> BinaryIO | None:
    """Open and lock a recording; return None if a run or a conversion has locked it."""
    file: BinaryIO = calls.open(mode)  # type: ignore[assignment]
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(file.fileno()).st_nlink:  # else it was converted between open and flock
            return file
    except BlockingIOError:
        pass
    file.close()
    return None


def _converted(folder: Path, accesses: AccessLog | None) -> tuple[Path, ...]:
    """Write one file for each selected call, and remove the recording and earlier files."""
    file = folder / CALLS
    calls = np.asarray(np.memmap(file, np.uint8, "r"))  # a memmap is slow to slice
    header = calls[: _HEADER.itemsize].view(_HEADER)[0]
    begin = _HEADER.itemsize + int(header["names"])
    facts = json.loads(calls[begin : int(header["first"])].tobytes())
    facts["requests"] |= {str(path): to_plain(request) for path, request in request_of.items()}
    if facts["level"] == LEVEL_HASHES:
        path = _write_hashes(folder, calls, header, int(facts["limit"]))
        file.unlink()
        return (path,)
    losses = _losses(header, int(facts["limit"]))
    conversion = _Conversion(facts, accesses, UNKNOWN if losses else UNFINISHED)
    files: dict[Path, TaskDump] = {}
    for ended, (before, after) in enumerate(_calls(calls, int(header["first"]))):
        dump = conversion.of_call(before, after, ended)
        if dump is not None:
            path = folder / f"{dump.label.replace('/', '_')}.npz"
            if path in files:  # without a log, the lanes of a task have one name
                path = folder / f"{path.stem}.{dump.core.replace(' ', '')}.npz"
            dump.write(path)
            dump.before.clear()
            dump.after.clear()
            files[path] = dump
    if losses:
        log.get(__name__).warning("dump", reason=losses)
    elif not files and accesses is not None and facts["level"] > 1:
        ran = ", ".join(sorted(set(accesses.kernels.values())))
        reason = f"no task of the run matches {facts['selection']!r}; its kernels are {ran}"
        log.get(__name__).warning("dump", reason=reason)
    if accesses is not None or len(calls) > header["first"]:  # else no call was made
        for earlier in set(folder.glob("*.npz")) - files.keys():
            earlier.unlink()
    file.unlink()
    with contextlib.suppress(OSError):
        if not files:
            folder.rmdir()
    in_order = sorted(files, key=lambda path: (files[path].task is None, files[path].task or 0))
    return tuple(in_order)


def _write_hashes(folder: Path, calls: NDArray[Any], header: Any, limit: int) -> Path:
    """Write the hashes of all calls that returned, in the order in which they ended."""
    rows = [np.zeros(0, HASH)]
    for before, after in _calls(calls, int(header["first"])):
        if after is None:
            continue
        found = np.zeros(len(after.tensors), HASH)
        found["task"], found["after"] = after.head["task"], after.tensors["at"]
        for name in ("argument", "bytes"):
            found[name] = after.tensors[name]
        if before is not None and len(before.tensors) == len(found):
            found["before"] = before.tensors["at"]
        rows.append(found)
    path = folder / HASHES
    content = {"losses": _losses(header, limit)}
    write_archive(path, Archive(_KIND_OF_HASHES, content, {HASHES: np.concatenate(rows)}))
    return path


def take_hashes(folder: Path) -> NDArray[Any]:
    """Read and remove the hashes of a run, rows of ``HASH``. Raises UsageError if some are lost."""
    path = folder / HASHES
    archive = read_archive(path, "the hashes of a run", "run the command again")
    path.unlink()
    if losses := archive.content["losses"]:
        raise UsageError(f"the hashes of the run are not complete: {losses}", name="dump")
    return archive.arrays[HASHES]


def _losses(header: Any, limit: int) -> str:
    """Return which records are lost and why; an empty text if there are all."""
    lost, granted = int(header["lost"]), int(header["limit"])
    why = os.strerror(int(header["error"])) if header["error"] else ""
    if why and not lost:
        return f"not all records of calls could be read: {why}"
    if not why:
        why = f"the limit dump_limit_bytes of {limit:,} bytes is reached: raise it"
        if granted < limit:
            why = f"the device had {granted:,} bytes for them, half of its free memory: free some"
        why += ", or select fewer kernels, because a task number limits the files, but not what is "
        why += "recorded"
    return f"{lost:,} records of calls were not kept; {why}" if lost else ""


@dataclass(frozen=True)
class _Record:
    head: Any
    tensors: Any
    name: str
    library: str
    payload: NDArray[Any]
    content: NDArray[Any]

    def array(self, tensor: Any) -> NDArray[Any]:
        """Return the elements of an argument."""
        kind = DataType(int(tensor["dtype"]))
        at = int(tensor["at"])
        shape = tensor["shapes"][: tensor["ndims"]].astype(int)
        content = self.content[at : at + int(tensor["bytes"])]
        found: NDArray[Any] = content.copy().view(stored_type(kind)).reshape(shape)
        return found


def _records(calls: NDArray[Any], at: int) -> Iterator[_Record]:
    while at + _RECORD.itemsize <= len(calls):
        head = calls[at : at + _RECORD.itemsize].view(_RECORD)[0]
        size = int(head["bytes"])
        if head["magic"] == 0 or (head["magic"] == _MAGIC and at + size > len(calls)):
            return  # the process died, or the disk was full, while it was written
        if head["magic"] != _MAGIC or size < _RECORD.itemsize:
            raise ValueError(f"byte {at} begins no record")
        content = calls[at : at + size]
        sizes = [int(head["tensors"]) * _TENSOR.itemsize]
        sizes += [int(head[name]) for name in ("name", "library", "payload")]
        ends = list(itertools.accumulate(sizes, initial=_RECORD.itemsize))
        tensors, name, library, payload = (content[a:b] for a, b in itertools.pairwise(ends))
        yield _Record(
            head,
            tensors.view(_TENSOR),
            name.tobytes().decode(errors="replace"),
            os.fsdecode(library.tobytes()),
            payload.copy(),
            content,
        )
        at += size


def _calls(calls: NDArray[Any], at: int) -> Iterator[tuple[_Record | None, _Record | None]]:
    """Yield the records before and after each call, in the order in which the calls ended."""
    open_calls: dict[int, _Record] = {}
    for record in _records(calls, at):
        core = int(record.head["core"])
        if record.head["phase"] == _BEFORE:
            if core in open_calls:  # the record after that call was not kept
                yield open_calls[core], None
            open_calls[core] = record
        elif record.head["phase"] != _DROPPED:
            before = open_calls.pop(core, None)
            if before is not None and before.head["task"] != record.head["task"]:
                yield before, None
                before = None
            yield before, record
    for record in open_calls.values():
        yield record, None


class _Conversion:
    """Makes the dump of a task from the records of its call and the access log of the run."""

    def __init__(
        self, facts: Mapping[str, Any], accesses: AccessLog | None, state_without_end: str
    ) -> None:
        self._facts = facts
        self._state_without_end = state_without_end
        self._log = accesses
        self._blocks = 0 if accesses is None else accesses.blocks
        self._graph = None if accesses is None else TaskGraph(accesses)
        self._task_of = {} if accesses is None else task_and_block_of_id(accesses)
        self._digests: dict[str, str] = {}
        text = facts["selection"]
        self._selection = Selection.of(text).of_run(facts["run"]) or Selection(text, ())

    def of_call(self, before: _Record | None, after: _Record | None, ended: int) -> TaskDump | None:
        """Return the dump of a call, or None if it is not selected."""
        record = before or after
        assert record is not None, "a call has a record"
        task_id, core = int(record.head["task"]), int(record.head["core"])
        index, block = self._task_of.get(task_id, (None, 0))
        terms = self._selection.terms_of(record.name, index, task_id)
        arguments = tuple(self._argument(tensor, index) for tensor in record.tensors)
        kept = [
            one
            for one in arguments
            if selects_tensor(terms, one.argument, None if index is None else one.name)
        ]
        if not terms or (arguments and not kept):
            return None
        positions = {one.argument for one in kept}
        tags = {one.argument: one.tag for one in kept}
        lane = None
        logged = None if self._graph is None or index is None else self._graph.task(index)
        if logged is not None and logged.kernel != record.name and core >= self._blocks:
            lane = (core - self._blocks) % 2
        state = self._state_without_end if after is None else RETURNED
        if after is not None and after.head["phase"] == _AFTER_FAILURE:
            state = FAILED
        request = self._facts["requests"].get(record.library)
        return TaskDump(
            kernel=record.name,
            task=index,
            id=task_id,
            block=block,
            blocks=0 if logged is None else logged.blocks,
            lane=lane,
            core=core_name(core, self._blocks),
            **{key: self._facts[key] for key in ("run", "device", "backend", "runtime")},
            file=None if logged is None else logged.file,
            line=None if logged is None else logged.line,
            state=state,
            is_together=bool(record.head["is_together"]),
            library=record.library,
            digest=self._digest(record.library),
            request=from_plain(BuildRequest, request),
            payload_address=int(record.head["address"]),
            scalars=_scalars(record, {one.argument for one in arguments}),
            arguments=tuple(kept),
            left_out=len(arguments) - len(kept),
            payload=record.payload,
            ended=ended,
            before=(arrays := _arrays(before, positions)),
            after={
                at: array
                for at, array in _arrays(after, positions).items()
                if tags[at] not in _READ
                or (at in arrays and arrays[at].tobytes() != array.tobytes())
            },
        )

    def _argument(self, tensor: Any, task: int | None) -> DumpedArgument:
        position, ndims = int(tensor["argument"]), int(tensor["ndims"])
        name, tag = self._declared(position, int(tensor["buffer"]), task)
        if not tag and tensor["tag"] < len(TAGS):
            tag = TAGS[int(tensor["tag"])]
        return DumpedArgument(
            argument=position,
            name=name,
            tag=tag,
            dtype=DataType(int(tensor["dtype"])).name.lower(),
            shape=tuple(tensor["shapes"][:ndims].tolist()),
            strides=tuple(tensor["strides"][:ndims].tolist()),
            **{key: int(tensor[key]) for key in ("address", "buffer", "buffer_bytes")},
        )

    def _declared(self, position: int, buffer: int, task: int | None) -> tuple[str, str]:
        """Return the memory that an argument names, and its tag."""
        if self._graph is None or self._log is None or task is None:
            return "", ""
        ends = self._log.tasks["accesses"]
        for access in range(int(ends[task - 1]) if task else 0, int(ends[task])):
            if self._log.accesses[access]["parameter"] == position:
                return self._graph.places.of(access).text, self._graph.tag(access)
        known = (one.name for one in self._log.buffers if one.address == buffer)
        return next(known, ""), ""

    def _digest(self, library: str) -> str:
        if library and library not in self._digests:
            try:
                self._digests[library] = file_digest(Path(library)).hex()
            except OSError:
                self._digests[library] = ""
        return self._digests.get(library, "")


def _arrays(record: _Record | None, positions: set[int]) -> dict[int, NDArray[Any]]:
    if record is None:
        return {}
    return {
        int(tensor["argument"]): record.array(tensor)
        for tensor in record.tensors
        if int(tensor["argument"]) in positions
    }


def _scalars(record: _Record, arrays: set[int]) -> dict[int, int]:
    """Return the arguments that are no arrays. In 2026-08, those that are not used are zero."""
    count = int(record.payload[_NUM_ARGS].view("u4")[0])
    values = record.payload[_PAYLOAD_HEADER : _PAYLOAD_HEADER + 8 * count].view("u8").tolist()
    relative = int(record.payload[_RELATIVE_ARGS].view("u8")[0])
    if relative >> _CONTEXT_ARGS & 1:
        values = values[:_CONTEXT_ARGS]
        while values and not values[-1]:
            values.pop()
    return {
        at: value for at, value in enumerate(values) if at not in arrays and not relative >> at & 1
    }
