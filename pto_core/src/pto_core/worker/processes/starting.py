"""How a child starts: as a fork of its parent, or as a new interpreter.

It runs the body of its :class:`ChildPlan` and reports through a pipe, which its
:class:`~pto_core.worker.processes.child_process.ChildProcess` reads in the parent.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import io
import os
import pickle
import signal
import sys
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from multiprocessing.util import spawnv_passfds
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, NoReturn

from pto_core import _worker
from pto_core.errors import UsageError
from pto_core.notebooks import is_of_notebook
from pto_core.worker.failures import Failure
from pto_core.worker.processes.child_process import LENGTH, AddressTakenError
from pto_core.worker.processes.parking import (
    close_in_child,
    limit_thread_pools,
    parent_only,
    parked,
)

if TYPE_CHECKING:
    from pto_core._worker import SharedMapping


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


def send_report(descriptor: int, kind: str, value: object) -> None:
    """Write one report; wait while the pipe is full. Raises the exceptions of pickle."""
    content = pickle.dumps((kind, value), protocol=pickle.HIGHEST_PROTOCOL)
    left = memoryview(LENGTH.pack(len(content)) + content)
    while left:
        left = left[os.write(descriptor, left) :]


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
        _worker.watch_parent(parent)
        _worker.set_process_name(_process_name(start.path))
        _reset_signals(mask)
        limit_thread_pools()
        _print_at_once()
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
    _worker.flush_streams()


def _print_at_once() -> None:
    """Write each printed line at once, so that a crash loses none.

    The streams of a notebook would send text to the cell whose code has forked this process. Text
    that is written to the descriptors appears in the current cell.
    """
    for name in ("stdout", "stderr"):
        if is_of_notebook(getattr(sys, name)):
            setattr(sys, name, getattr(sys, f"__{name}__"))
        stream = getattr(sys, name)
        if isinstance(stream, io.TextIOWrapper):
            with contextlib.suppress(OSError, ValueError):  # the program has closed it
                stream.reconfigure(line_buffering=True)


def _reset_signals(mask: bytes) -> None:
    """Reset the parent's signal handlers. Ignore Ctrl-C, which the parent handles."""
    signal.set_wakeup_fd(-1)
    _worker.reset_signals()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _worker.restore_signals(mask)
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


def keep(places: Iterable[Place]) -> None:
    """Keep the descriptors of mappings open for spawned children; forked children close them."""
    for descriptor, nbytes, address in places:
        _places.append((parent_only(descriptor), nbytes, address))


def start_process(plan: ChildPlan, parent: int, body: bytes) -> tuple[int, int]:
    """Start a child; return its process id and the read end of its start-up pipe.

    ``parent``: a pidfd of this process. ``body``: the pickled body of a spawned child. All
    registered threads are parked meanwhile. Signals are blocked until the child has reset the
    parent's handlers. Raises OSError.
    """
    flush_output()
    if plan.start_method == "fork":
        _worker.find_thread_pools()
    mappings = places_for(plan)
    with parked():
        read_end, write_end = os.pipe2(os.O_CLOEXEC)
        mask = _worker.block_signals()
        try:
            if plan.start_method == "spawn":
                pid = _spawn(plan, mappings, body, write_end, parent, mask)
            elif (pid := os.fork()) == 0:
                _be_child(plan, mappings, write_end, read_end, parent, mask)
        except BaseException:
            os.close(read_end)
            raise
        finally:
            _worker.restore_signals(mask)
            os.close(write_end)
        parent_only(read_end)
    return pid, read_end


def _be_child(
    plan: ChildPlan,
    mappings: list[Place],
    reports: int,
    parents_end: int,
    parent: int,
    mask: bytes,
) -> NoReturn:
    try:
        places = mappings if plan.passes_on else []
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


def _spawn(
    plan: ChildPlan, mappings: list[Place], body: bytes, reports: int, parent: int, mask: bytes
) -> int:
    job = _Job(plan.path, mappings, plan.passes_on, mask, plan.descriptors, sys.argv, body)
    source = _unnamed_file()
    try:
        with os.fdopen(source, "wb", closefd=False) as opened:
            pickle.dump(job, opened)
        os.lseek(source, 0, os.SEEK_SET)
        words = interpreter_command(f"{__name__}:main", source, reports, parent)
        command = list(map(os.fsencode, words))
        passed = [source, reports, parent, *job.descriptors]
        passed += (descriptor for descriptor, _, _ in mappings)
        return int(spawnv_passfds(command[0], command, passed))
    finally:
        os.close(source)


def interpreter_command(function: str, *arguments: object) -> list[str]:
    """Return the command of an interpreter that calls ``"module:function"``.

    It has the search path of this process. ``arguments``: its ``sys.argv[1:]``.
    """
    module, _, name = function.partition(":")
    program = f"import sys; sys.path[:] = {sys.path!r}; from {module} import {name}; {name}()"
    return [sys.executable, "-P", "-c", program, *map(str, arguments)]


def _unnamed_file() -> int:
    try:
        return os.memfd_create("pto-job", os.MFD_CLOEXEC | _MFD_NOEXEC_SEAL)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        # older Linux kernels do not know this flag
        return os.memfd_create("pto-job", os.MFD_CLOEXEC)


def main() -> NoReturn:
    """Run a child in the new interpreter."""
    source, reports, parent = map(int, sys.argv[1:])
    with os.fdopen(source, "rb") as opened:
        job: _Job = pickle.load(opened)
    for descriptor in (reports, parent, *job.descriptors):
        os.set_inheritable(descriptor, False)
    kept: list[_worker.SharedMapping] = []

    def prepare() -> Any:
        kept.extend(_attached(*mapping) for mapping in job.mappings)
        _keep_or_close(job)
        sys.argv = job.arguments
        return pickle.loads(job.body)

    run_child(ChildStart(job.path, reports), prepare, parent, job.mask)


def _attached(descriptor: int, nbytes: int, address: int) -> _worker.SharedMapping:
    try:
        mapping = _worker.SharedMapping.attach(descriptor, nbytes, address)
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
