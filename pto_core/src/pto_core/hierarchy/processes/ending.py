"""End child processes; each wait has a time limit."""

from __future__ import annotations

import time
from collections.abc import Iterable

from pto_core.hierarchy.processes.child_process import ChildProcess, wait_for_any
from pto_core.interrupts import Interrupts

_TERM_GRACE_S = 1.0
_KILL_GRACE_S = 5.0  # seconds; a system call that cannot be interrupted may delay an exit


def end_all(children: Iterable[ChildProcess], grace_s: float, interrupts: Interrupts) -> None:
    """Wait for children that were asked to close; after ``grace_s``, end the remaining ones.

    The remaining children receive SIGTERM, then SIGKILL. A signal to this process ends the first
    wait.
    """
    left = wait_for_all(children, grace_s, interrupts)
    for child in left:
        child.terminate()
    left = wait_for_all(left, _TERM_GRACE_S)
    kill_all(left)


def kill_all(children: Iterable[ChildProcess]) -> None:
    """Kill children and wait until they have exited."""
    left = [child for child in children if child.poll() is None]
    for child in left:
        child.kill()
    wait_for_all(left, _KILL_GRACE_S)


def wait_for_all(
    children: Iterable[ChildProcess], timeout_s: float, interrupts: Interrupts | None = None
) -> list[ChildProcess]:
    """Wait up to ``timeout_s`` until all children have exited; return those that are running."""
    deadline = time.monotonic() + timeout_s
    also = -1 if interrupts is None else interrupts.descriptor
    while left := [child for child in children if child.poll() is None]:
        remaining = deadline - time.monotonic()
        if remaining <= 0 or (interrupts is not None and interrupts.signal is not None):
            break
        wait_for_any(left, remaining, also)
    return left
