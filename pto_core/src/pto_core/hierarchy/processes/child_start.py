"""The first and last steps of a child process. All code of this module runs in the child."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterable
from typing import NoReturn

from pto_core import _hierarchy
from pto_core.hierarchy.failures import Failure
from pto_core.hierarchy.processes.descriptors import close_in_child
from pto_core.hierarchy.processes.reports import send_report
from pto_core.hierarchy.processes.thread_pools import limit_thread_pools

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
