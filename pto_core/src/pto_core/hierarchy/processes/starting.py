"""How a child starts, and how its parent waits until it is ready.

A child is a fork of its parent (:func:`fork_child`) or a new interpreter (:func:`spawn_child`). It
runs the body of its :class:`ChildPlan` and reports through a pipe; :func:`await_ready` follows the
reports of several children.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import pickle
import select
import signal
import struct
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from multiprocessing.util import spawnv_passfds
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, NoReturn

from pto_core import _hierarchy
from pto_core.errors import AbortedError, ChildStartError, UsageError
from pto_core.errors.limits import reached_limit
from pto_core.hierarchy.failures import Failure
from pto_core.hierarchy.processes.child_process import ChildExit, ChildProcess
from pto_core.hierarchy.processes.parking import (
    close_in_child,
    close_parent_only,
    limit_thread_pools,
    parent_only,
    parked,
)
from pto_core.interrupts import Interrupts

if TYPE_CHECKING:
    from pto_core._hierarchy import SharedMapping


StartMethod = Literal["fork", "spawn"]


@dataclass(frozen=True)
class ChildPlan:
    """The name and body of a child, and the memory that it shares.

    ``path`` names the child in messages (``"L4/host0"``). ``body`` runs in the child and calls
    ``start.ready(value)`` once. When it returns, the child exits. A spawned child receives ``body``
    pickled, and attaches ``mappings`` at the addresses that they have in this process.
    ``passes_on``: the child will spawn children that need the mappings too. ``descriptors``: other
    descriptors that a spawned child inherits under the same numbers, as a forked child does.
    """

    path: str
    body: Callable[[ChildStart], None]
    mappings: tuple[SharedMapping, ...] = field(default=(), repr=False)
    passes_on: bool = False
    start_method: StartMethod = "fork"
    descriptors: tuple[int, ...] = ()


# The reports that a starting child sends to its parent through a pipe.
#
# A report is a length followed by a pickled pair: ``("doing", text)``, ``("ready", value)`` or
# ``("failed", packed Failure)``. The pipe is closed after the last report, or by the exit of the
# child.

_LENGTH = struct.Struct("<Q")
_READ_BYTES = 1 << 16


def send_report(descriptor: int, kind: str, value: object) -> None:
    """Write one report; wait while the pipe is full. Raises the exceptions of pickle."""
    content = pickle.dumps((kind, value), protocol=pickle.HIGHEST_PROTOCOL)
    left = memoryview(_LENGTH.pack(len(content)) + content)
    while left:
        left = left[os.write(descriptor, left) :]


class ReportReader:
    """The read end of the pipe, which the parent polls."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.is_open = True
        self._received = bytearray()
        os.set_blocking(descriptor, False)

    def read(self) -> list[tuple[str, Any]]:
        """Return the complete reports. Raises the exceptions of unpickling."""
        while self.is_open:
            try:
                content = os.read(self.descriptor, _READ_BYTES)
            except BlockingIOError:
                break
            self.is_open = bool(content)
            self._received += content
        reports = []
        while (report := self._next()) is not None:
            reports.append(pickle.loads(report))
        return reports

    def _next(self) -> bytes | None:
        if len(self._received) < _LENGTH.size:
            return None
        end = _LENGTH.size + _LENGTH.unpack_from(self._received)[0]
        if len(self._received) < end:
            return None
        report = bytes(self._received[_LENGTH.size : end])
        del self._received[:end]
        return report


# The first and last steps of a child. The code from here to _exit_code() runs in the child.
_NAME_BYTES = 15
_OURS = (signal.SIGINT, signal.SIGTERM)


class ChildStart:
    """Reports the progress of a child's start to its parent; ``path`` is the child's name."""

    def __init__(self, path: str, descriptor: int) -> None:
        self.path = path
        self.is_ready = False
        self._descriptor = descriptor

    def doing(self, what: str) -> None:
        """Report the current step; if the start takes too long, the error names this step."""
        send_report(self._descriptor, "doing", what)

    def ready(self, value: object = None) -> None:
        """Report, once, that the child accepts tasks. The parent receives ``value``."""
        send_report(self._descriptor, "ready", value)
        self.is_ready = True
        os.close(self._descriptor)

    def failed(self, error: BaseException) -> None:
        """Report the error that prevents the child from starting."""
        with contextlib.suppress(OSError):  # the parent may have exited
            send_report(self._descriptor, "failed", Failure.of(error).pack())


def run_child(
    start: ChildStart,
    prepare: Callable[[], Callable[[ChildStart], None]],
    parent: int,
    mask: bytes,
) -> NoReturn:
    """Run the body that ``prepare`` returns, then exit the process.

    ``parent``: a pidfd of the parent. ``mask``: the signal mask that ``block_signals`` returned in
    the parent. The interpreter is not shut down, because its exit handlers belong to the parent's
    program.
    """
    code = 1
    try:
        _hierarchy.watch_parent(parent)
        _hierarchy.set_process_name(_process_name(start.path))
        _reset_signals(mask)
        limit_thread_pools()
        body = prepare()
        body(start)
        code = 0
    except SystemExit as leaving:
        code = _exit_code(leaving)
        if not start.is_ready:
            start.failed(leaving)
    except BaseException as error:  # noqa: BLE001 - it is reported to the parent or printed
        if start.is_ready:
            traceback.print_exc()
        else:
            start.failed(error)
    finally:
        flush_output()
        os._exit(code)


def after_fork(others: Iterable[int], kept: Iterable[int]) -> None:
    """Release the descriptors and the state that the child has inherited from the parent."""
    close_in_child(others, kept)
    gc.freeze()  # without this, a garbage collection would copy every inherited page
    _reseed()


def flush_output() -> None:
    """Flush printed text. Otherwise a fork would duplicate it, and ``os._exit`` would lose it."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    _hierarchy.flush_streams()


def _reset_signals(mask: bytes) -> None:
    """Reset the parent's signal handlers. Ignore Ctrl-C, which the parent handles."""
    signal.set_wakeup_fd(-1)
    _hierarchy.reset_signals()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _hierarchy.restore_signals(mask)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _OURS)


def _reseed() -> None:
    """Reseed NumPy, so that children draw different random numbers. Python reseeds ``random``."""
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed()


def _process_name(path: str) -> str:
    """Cut the beginning of a long path, because its end names the child."""
    return path if len(path.encode()) <= _NAME_BYTES else "~" + path[1 - _NAME_BYTES :]


def _exit_code(leaving: SystemExit) -> int:
    if leaving.code is None:
        return 0
    if isinstance(leaving.code, int):
        return leaving.code & 0xFF
    print(leaving.code, file=sys.stderr)  # noqa: T201 - as the interpreter prints it
    return 1


# The mappings that a spawned child needs from its ancestor Workers.
#
# A forked process inherits the mappings at the same addresses. A spawned process attaches them
# through their descriptors. Therefore the descriptors stay open in every process between the Worker
# that created the mappings and the spawned process.

Place = tuple[int, int, int]
"""The descriptor, the size and the address of a mapping."""

_places: list[Place] = []
os.register_at_fork(after_in_child=_places.clear)


def places_for(plan: ChildPlan) -> list[Place]:
    """Return the mappings of this Worker and its ancestors that a spawned child attaches."""
    return [*_places, *((one.descriptor, one.nbytes, one.address) for one in plan.mappings)]


def attached_by_spawned(mappings: Iterable[SharedMapping]) -> list[tuple[int, int]]:
    """Return the address and size of each mapping that spawned children attach."""
    above = [(address, nbytes) for _, nbytes, address in _places]
    return [*above, *((one.address, one.nbytes) for one in mappings)]


def passed_on(plan: ChildPlan) -> list[Place]:
    """Return the mappings whose descriptors a forked child must keep open."""
    return places_for(plan) if plan.passes_on else []


def keep(places: Iterable[Place]) -> None:
    """Keep the descriptors of mappings open for spawned children; forked children close them."""
    for descriptor, nbytes, address in places:
        _places.append((parent_only(descriptor), nbytes, address))


def fork_child(plan: ChildPlan, parent: int) -> tuple[int, ReportReader]:
    """Fork a child; return its process id and the read end of its start-up pipe.

    ``parent``: a pidfd of this process. All registered threads are parked during the fork. Signals
    are blocked until the child has reset the parent's handlers. Raises OSError.
    """
    flush_output()
    _hierarchy.find_thread_pools()
    places = passed_on(plan)
    with parked():
        read_end, write_end = os.pipe2(os.O_CLOEXEC)
        mask = _hierarchy.block_signals()
        try:
            pid = os.fork()
            if pid == 0:
                _be_child(plan, places, parent, write_end, read_end, mask)
        except OSError:
            os.close(read_end)
            raise
        finally:
            _hierarchy.restore_signals(mask)
            os.close(write_end)
        parent_only(read_end)
    return pid, ReportReader(read_end)


def _be_child(
    plan: ChildPlan,
    places: list[Place],
    parent: int,
    reports: int,
    parents_end: int,
    mask: bytes,
) -> None:
    try:
        parent = os.dup(parent)
        after_fork([parents_end], [descriptor for descriptor, _, _ in places])
        keep(places)
        run_child(ChildStart(plan.path, reports), lambda: plan.body, parent, mask)
    finally:
        os._exit(1)


# Start a child as a new interpreter, for programs that cannot use a fork.
#
# The new interpreter reads a job from an unnamed file. It attaches the mappings at their addresses
# before it imports other modules, then unpickles the body. Therefore a body must be picklable.
# cloudpickle serialises functions of the main module by code, so the child does not import that
# module. A child that will spawn children keeps the descriptors and passes the mappings on, so that
# every level sees the memory of all levels above it.

_COMMAND = (
    "import sys; sys.path[:] = {path!r}; "
    "from pto_core.hierarchy.processes.starting import main; main()"
)
_MFD_NOEXEC_SEAL = 0x8  # some kernels create memory files only with this flag


class _Job(NamedTuple):
    """The content of the job file. The body is unpickled after the mappings are attached."""

    path: str
    mappings: list[Place]
    passes_on: bool
    mask: bytes
    descriptors: tuple[int, ...]
    arguments: list[str]
    body: bytes


class AddressTakenError(OSError):
    """The address of a mapping is in use in the new process. Another attempt may succeed."""


def pickled_body(plan: ChildPlan) -> bytes:
    """Return the pickled body of a child. Raises UsageError if it cannot be pickled."""
    import cloudpickle

    try:
        return bytes(cloudpickle.dumps(plan.body))
    except Exception as error:
        raise UsageError(
            f"{plan.path} cannot be started with start_method='spawn': {error}; remove objects "
            "that cannot be pickled from its settings and callables, or use start_method='fork'",
            name="start_method",
            value="spawn",
        ) from error


def spawn_child(plan: ChildPlan, parent: int, body: bytes) -> tuple[int, ReportReader]:
    """Start a child with its pickled ``body``; otherwise like :func:`fork_child`."""
    flush_output()
    mappings = places_for(plan)
    with parked():
        read_end, write_end = os.pipe2(os.O_CLOEXEC)
        mask = _hierarchy.block_signals()
        try:
            job = _Job(plan.path, mappings, plan.passes_on, mask, plan.descriptors, sys.argv, body)
            pid = _spawn(job, write_end, parent)
        except BaseException:
            os.close(read_end)
            raise
        finally:
            _hierarchy.restore_signals(mask)
            os.close(write_end)
        parent_only(read_end)
    return pid, ReportReader(read_end)


def _spawn(job: _Job, reports: int, parent: int) -> int:
    source = _unnamed_file()
    try:
        with os.fdopen(source, "wb", closefd=False) as opened:
            pickle.dump(job, opened)
        os.lseek(source, 0, os.SEEK_SET)
        command = [os.fsencode(sys.executable), b"-P", b"-c"]
        command.append(_COMMAND.format(path=sys.path).encode())
        command += [str(number).encode() for number in (source, reports, parent)]
        passed = [source, reports, parent, *job.descriptors]
        passed += (descriptor for descriptor, _, _ in job.mappings)
        return int(spawnv_passfds(command[0], command, passed))
    finally:
        os.close(source)


def _unnamed_file() -> int:
    try:
        return os.memfd_create("pto-job", os.MFD_CLOEXEC | _MFD_NOEXEC_SEAL)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        # older Linux kernels do not know this flag
        return os.memfd_create("pto-job", os.MFD_CLOEXEC)


def main() -> NoReturn:
    """Run a child that :func:`spawn_child` started."""
    source, reports, parent = map(int, sys.argv[1:])
    with os.fdopen(source, "rb") as opened:
        job: _Job = pickle.load(opened)
    for descriptor in (reports, parent, *job.descriptors):
        os.set_inheritable(descriptor, False)
    kept: list[_hierarchy.SharedMapping] = []

    def prepare() -> Any:
        kept.extend(_attached(*mapping) for mapping in job.mappings)
        _keep_or_close(job)
        sys.argv = job.arguments
        return pickle.loads(job.body)

    run_child(ChildStart(job.path, reports), prepare, parent, job.mask)


def _attached(descriptor: int, nbytes: int, address: int) -> _hierarchy.SharedMapping:
    try:
        mapping = _hierarchy.SharedMapping.attach(descriptor, nbytes, address)
    except OSError as error:
        if error.errno == errno.EEXIST:
            raise AddressTakenError(
                errno.EEXIST, f"{nbytes} bytes at {address:#x} are not free in the new process"
            ) from None
        raise
    return mapping


def _keep_or_close(job: _Job) -> None:
    for descriptor, _, _ in job.mappings:
        if job.passes_on:
            os.set_inheritable(descriptor, False)
        else:
            os.close(descriptor)
    if job.passes_on:
        keep(job.mappings)


_SLICE_S = 0.05  # seconds between two checks whether the start was cancelled


@dataclass
class Starting:
    """A child that is starting. If ``failure`` is set, it failed but may be started again."""

    process: ChildProcess
    reports: ReportReader
    doing: str = "starting"
    is_ready: bool = False
    value: Any = None
    failure: ChildStartError | None = None
    begun: float = field(default_factory=time.monotonic)

    def close(self) -> None:
        """Close the pipe; a second call does nothing."""
        if self.reports.descriptor >= 0:
            close_parent_only(self.reports.descriptor)
            self.reports.descriptor = -1

    def take_reports(self) -> None:
        """Read the reports of the child. Raises ChildStartError if the child could not start."""
        for kind, value in self.reports.read():
            if kind == "doing":
                self.doing = value
            elif kind == "failed":
                self._fail(Failure.unpack(value))
            else:
                self.is_ready, self.value = True, value
        if self.is_ready:
            self.close()

    def _fail(self, failure: Failure) -> None:
        error = _start_failed(self.process, failure)
        if not isinstance(error.__cause__, AddressTakenError):
            raise error
        self.failure = error

    @property
    def is_over(self) -> bool:
        """Whether the child is ready or has failed."""
        return self.is_ready or self.failure is not None

    def check_end(self) -> None:
        """Raise ChildStartError if the child exited before it was ready."""
        ended = self.process.poll()
        if ended is None:
            return
        self.take_reports()
        if not self.is_over:
            raise self._ended(ended)

    def check(self, timeout_s: float) -> None:
        """Read the reports of the child and check whether it has exited, without waiting.

        An exit sets ``failure``. Raises ChildStartError if the child reported an error, or if it is
        not ready after ``timeout_s``.
        """
        ended = self.process.poll()
        self.take_reports()
        if self.failure is None and ended is not None:
            self.is_ready, self.failure = False, self._ended(ended)
        if not self.is_over and time.monotonic() >= self.begun + timeout_s:
            raise _too_slow([self], timeout_s)

    def _ended(self, ended: ChildExit) -> ChildStartError:
        return start_error(
            self.process, f"{ended.description} while {self.doing}, before it was ready"
        )


def await_ready(
    started: Sequence[Starting],
    timeout_s: float,
    interrupts: Interrupts,
    is_cancelled: Callable[[], bool],
) -> list[Starting]:
    """Wait until all children are ready; return those that failed but may be started again.

    Raises ChildStartError if a child cannot start, exits, or is not ready ``timeout_s`` after its
    start. Raises AbortedError after a signal, and shortly after ``is_cancelled()`` becomes true.
    """
    waiting = list(started)
    poller = select.poll()
    if interrupts.descriptor >= 0:
        poller.register(interrupts.descriptor, select.POLLIN)
    by_descriptor = {}
    for one in waiting:
        by_descriptor[one.reports.descriptor] = by_descriptor[one.process.pidfd] = one
        poller.register(one.reports.descriptor, select.POLLIN)
        poller.register(one.process.pidfd, select.POLLIN)
    while waiting:
        if interrupts.signal is not None:
            raise AbortedError("interrupted while children were started; all of them were ended")
        check_not_cancelled(is_cancelled)
        deadline = min(one.begun for one in waiting) + timeout_s
        left = deadline - time.monotonic()
        if left <= 0:
            raise _too_slow(waiting, timeout_s)
        for descriptor, _ in poller.poll(min(left, _SLICE_S) * 1000):
            found = by_descriptor.get(descriptor)
            if found is not None and not found.is_over:
                _follow(found, descriptor, poller)
        waiting = [one for one in waiting if not one.is_over]
    return [one for one in started if one.failure is not None]


def check_not_cancelled(is_cancelled: Callable[[], bool]) -> None:
    """Raise AbortedError if the start of the children was cancelled."""
    if is_cancelled():
        raise AbortedError("the start of children was cancelled; all of them were ended")


def _follow(one: Starting, descriptor: int, poller: select.poll) -> None:
    pipe, pidfd = one.reports.descriptor, one.process.pidfd
    one.take_reports()
    if one.is_over:
        poller.unregister(pipe)
        poller.unregister(pidfd)
        return
    if not one.reports.is_open and descriptor == pipe:
        poller.unregister(pipe)  # the child has closed its pipe; its exit is detected by its pidfd
    one.check_end()


def start_error(process: ChildProcess, what: str, **fields: Any) -> ChildStartError:
    """Return the error for a child that did not become ready."""
    return ChildStartError(
        f"{process.path}: process {process.pid} {what}",
        child=process.index,
        path=process.path,
        pid=process.pid,
        **fields,
    )


def _start_failed(process: ChildProcess, failure: Failure) -> ChildStartError:
    """Return the error for an exception in a child.

    The error of a nested child is unchanged, and so is that of the same child on another host.
    """
    cause = failure.exception
    if isinstance(cause, ChildStartError) and f"{cause.path}/".startswith(f"{process.path}/"):
        return cause
    what = f"could not start: {failure.type_name}: {failure.message}"
    limit = reached_limit(cause.errno) if isinstance(cause, OSError) else None
    error = start_error(
        process,
        what if limit is None else f"{what}; {limit.advice}",
        remote_traceback=failure.traceback,
    )
    error.__cause__ = cause
    return error


def _too_slow(waiting: Sequence[Starting], timeout_s: float) -> ChildStartError:
    late = min(waiting, key=lambda one: one.begun)
    others = f"; {len(waiting) - 1} more are not ready either" if len(waiting) > 1 else ""
    return start_error(
        late.process,
        f"was not ready after {timeout_s:g} s: it was {late.doing}{others}; find out what it "
        "waits for, or raise child_start_timeout_s",
    )
