"""Run test bodies in separate processes, so that a call that blocks or crashes is detected.

A body must not use objects whose locks a thread of the parent may have held at the fork.
"""

from __future__ import annotations

import os
import select
import signal
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pto_devkit.checks import ContractError, expect

LIMIT_S = 30.0
"""The limit in seconds for a wait without progress. Tests may shorten it at any time.
"""
_BODY_LIMIT_S = 120.0
_PATIENCE_S = 0.05

_beside: list[ForkedProcess] = []
"""The processes of :func:`running`. If one of them fails, a wait inside its block ends early.
"""


class ForkedProcess:
    """A forked process that runs a body. :meth:`join` reports its failure."""

    def __init__(self, body: Callable[[], None]) -> None:
        self._reports, write = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            _run(body, write)
        os.close(write)
        self._is_reaped = False

    def kill(self) -> None:
        """Kill the process immediately."""
        if not self._is_reaped:
            os.kill(self.pid, signal.SIGKILL)

    def join(self, limit_s: float | None = None) -> None:
        """Wait for the exit. Raises :class:`ContractError` with the error or signal of the process.

        A second call does nothing. Without ``limit_s``, the limit is ``LIMIT_S``.
        """
        if self._is_reaped:
            return
        limit_s = LIMIT_S if limit_s is None else limit_s
        is_over = select.select([self._reports], [], [], limit_s)[0]
        report = _read_all(self._reports) if is_over else b""
        if not is_over:
            self.kill()
        status = self._reap()
        expect(is_over, f"the child's process does not end within {limit_s:.0f} s: a call blocks?")
        expect(not report, report.decode(errors="replace"))
        if os.WIFSIGNALED(status):
            name = signal.Signals(os.WTERMSIG(status)).name
            raise ContractError(f"the transport crashed the process: {name}")

    def report_failure(self, within_s: float = 0.0) -> None:
        """Raise the error of :meth:`join` if the process ends in time; otherwise do nothing."""
        if not self._is_reaped and select.select([self._reports], [], [], within_s)[0]:
            self.join()

    def _reap(self) -> int:
        if self._is_reaped:
            return 0
        self._is_reaped = True
        os.close(self._reports)
        return os.waitpid(self.pid, 0)[1]

    def discard(self) -> None:
        """Kill the process and collect its exit status."""
        if not self._is_reaped:
            self.kill()
            self._reap()


def _run(body: Callable[[], None], write: int) -> None:
    """Run ``body`` in the child process, report its failure, and exit."""
    try:
        body()
    except ContractError as failure:
        os.write(write, str(failure).encode() or b"a check failed")
    except BaseException:  # noqa: BLE001 - any exception is reported to the parent
        os.write(write, traceback.format_exc().encode()[-4000:])
    finally:
        os._exit(0)


def _read_all(descriptor: int) -> bytes:
    parts = []
    while part := os.read(descriptor, 65536):
        parts.append(part)
    return b"".join(parts)


@contextmanager
def running(body: Callable[[], None]) -> Iterator[ForkedProcess]:
    """Run ``body`` in a child during a ``with`` block; afterwards, require that ``body`` succeeded.

    If both the block and ``body`` fail, the error of ``body`` is raised, because it may be the
    cause.
    """
    child = ForkedProcess(body)
    _beside.append(child)
    try:
        try:
            yield child
        except ContractError:
            child.report_failure(within_s=0.5)
            raise
        child.join()
    finally:
        _beside.remove(child)
        child.discard()


def apart(body: Callable[[], None], limit_s: float = _BODY_LIMIT_S) -> None:
    """Run ``body`` in a separate process and wait for it."""
    with running(body) as child:
        child.join(limit_s)


class Progress:
    """Limits waits without progress, and lets other threads run between polls."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._since = time.monotonic()

    def moved(self) -> None:
        """Record progress."""
        self._since = time.monotonic()

    def check(self, moved: object) -> None:
        """Record progress if ``moved``; otherwise yield; raise ContractError after ``LIMIT_S``."""
        if moved:
            self.moved()
            return
        waited = time.monotonic() - self._since
        if waited > _PATIENCE_S:
            for child in _beside:
                child.report_failure()
        expect(waited < LIMIT_S, f"{self._what}: no progress for {LIMIT_S:.0f} s")
        time.sleep(0 if waited < 0.01 else 0.001)
