"""Ending children, with bounded waits."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from pto_core.hierarchy.processes.child_process import ChildProcess, wait_for_any
from pto_core.interrupts import Interrupts

_TERM_GRACE_S = 1.0
_KILL_GRACE_S = 5.0  # of a process in the middle of a system call that cannot be interrupted


def end_all(children: Iterable[ChildProcess], grace_s: float, interrupts: Interrupts) -> None:
    """Wait for children that were told to close, then ask, then end them; all are waited for.

    A signal that is noted ends the first wait.
    """
    left = wait_for_all(children, grace_s, interrupts)
    _each(left, ChildProcess.terminate)
    left = wait_for_all(left, _TERM_GRACE_S)
    kill_all(left)


def kill_all(children: Iterable[ChildProcess]) -> None:
    """End children at once and wait for them."""
    left = [child for child in children if child.poll() is None]
    _each(left, ChildProcess.kill)
    wait_for_all(left, _KILL_GRACE_S)


def wait_for_all(
    children: Iterable[ChildProcess], timeout_s: float, interrupts: Interrupts | None = None
) -> list[ChildProcess]:
    """Wait until all have ended, so long at most; gives those that have not."""
    deadline = time.monotonic() + timeout_s
    also = -1 if interrupts is None else interrupts.descriptor
    while left := [child for child in children if child.poll() is None]:
        remaining = deadline - time.monotonic()
        if remaining <= 0 or (interrupts is not None and interrupts.signal is not None):
            break
        wait_for_any(left, remaining, also)
    return left


def _each(children: Iterable[ChildProcess], act: Callable[[ChildProcess], None]) -> None:
    for child in children:
        act(child)
