"""Processes that are watched from outside, and what can be seen of them."""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

PATIENCE_S = 60
END_S = 60
"""What a watched process has at most to end, on a machine with much else to do."""
INTERRUPTED = 130
OWN_FAULT = 70
"""The code of a watched process that found something of its own left, or dropped an interrupt."""
SAY_WHERE = signal.SIGUSR2
WEAK_REFERENCES = ("weakref", "_weakrefset")

_stacks: dict[int, int] = {}
"""Where watched processes write their stacks, by their numbers."""


@contextlib.contextmanager
def planted(run: Callable[[int], None]) -> Iterator[tuple[int, int]]:
    """Fork a process that calls ``run`` with where it may write; gives it and where to read."""
    read_end, write_end = os.pipe()
    stacks = os.memfd_create("stacks")
    top = os.fork()
    if top == 0:
        code = OWN_FAULT
        try:
            os.close(read_end)
            faulthandler.register(SAY_WHERE, stacks, all_threads=True)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            sys.unraisablehook = interrupt_again
            run(write_end)
            code = 0
        except KeyboardInterrupt:
            code = INTERRUPTED
        finally:
            os._exit(code)
    os.close(write_end)
    _stacks[top] = stacks
    try:
        yield top, read_end
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(top, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(top, 0)
        os.close(read_end)
        os.close(_stacks.pop(top))


def code_of(top: int) -> int:
    """Wait for the end of a watched process, and say its code; where it does not end, its stacks.

    The code is negative where a signal ended it.
    """
    if not has_ended(top, END_S):
        where = f"after {END_S} s the process runs on, over {below(top)}:\n{stacks_of(top)}"
        os.kill(top, signal.SIGKILL)
        os.waitpid(top, 0)
        raise AssertionError(where)
    return os.waitstatus_to_exitcode(os.waitpid(top, 0)[1])


def has_ended(pid: int, timeout_s: float) -> bool:
    """Whether a child of this process ends in that time."""
    descriptor = os.pidfd_open(pid)
    try:
        return is_readable(descriptor, timeout_s)
    finally:
        os.close(descriptor)


def is_readable(descriptor: int, timeout_s: float) -> bool:
    """Whether there is something to read, or its writers are gone, within that time."""
    return bool(select.select([descriptor], [], [], timeout_s)[0])


def stacks_of(top: int) -> str:
    """What the threads of a watched process do, twice: whether it goes on."""
    for _ in range(2):
        os.kill(top, SAY_WHERE)
        has_ended(top, 0.5)
    stacks = os.pread(_stacks[top], 1 << 20, 0).decode(errors="replace")
    kernel = [task.read_text() for task in Path(f"/proc/{top}/task").glob("*/wchan")]
    return f"{stacks}\nin the kernel: {kernel}"


def interrupt_again(dropped: Any) -> None:
    """Tell of an interrupt that CPython dropped, and send it again, a little later.

    That happens where it runs Python of its own accord, in a callback of a weak reference or in a
    ``__del__``. No library can help that; but it can have none of them on its way.
    """
    sys.__unraisablehook__(dropped)
    if not issubclass(dropped.exc_type, KeyboardInterrupt):
        return
    module = str(getattr(dropped.object, "__module__", ""))
    if module.startswith("pto") or module in WEAK_REFERENCES:
        os.write(2, f"an interrupt was dropped by {dropped.object!r}\n".encode())
        os._exit(OWN_FAULT)
    signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), signal.SIGINT))
    signal.setitimer(signal.ITIMER_REAL, 0.001)


def again_until_interrupted(once: Callable[[], None]) -> None:
    """Do it again and again; when interrupted, see that nothing of it is left in this process."""
    before = set(os.listdir("/proc/self/fd")), mappings(os.getpid())
    try:
        while True:
            once()
    except KeyboardInterrupt as interruption:
        clear_frames(interruption)
        gc.collect()
        found = set(os.listdir("/proc/self/fd")), mappings(os.getpid())
        if children(os.getpid()) or found != before:
            message = f"left: {children(os.getpid())} {found} instead of {before}\n"
            os.write(2, message.encode())
            os._exit(OWN_FAULT)
        raise


def clear_frames(error: BaseException | None) -> None:
    """Drop the local variables of the calls that raised."""
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error.__traceback__ = None  # cleared frames still hold what their functions close over
        error = error.__context__


def children(pid: int) -> list[int]:
    """The processes that one has started, the first one first."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):
            found += map(int, (task / "children").read_text().split())
    return sorted(found)


def below(pid: int) -> list[int]:
    """All that it has started, and they."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for child in children(pid):
            found += [child, *below(child)]
    return found


def mappings(pid: int) -> int:
    """How many mappings of Workers a process has; none if it is gone."""
    try:
        with open(f"/proc/{pid}/maps") as lines:
            return sum("pto-worker" in line for line in lines)
    except OSError:
        return 0


def left_of(pids: list[int]) -> list[int]:
    """Those that run still or hold memory, after some patience for what is ending."""
    deadline = time.monotonic() + PATIENCE_S
    while left := [pid for pid in pids if not is_gone(pid)]:
        if time.monotonic() > deadline:
            break
        time.sleep(0.001)
    return left


def is_gone(pid: int) -> bool:
    """Return whether it has exited, even if it was not reaped."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def spin_until(deadline: float) -> None:
    """Be exact to the microsecond, as far as the machine lets us."""
    while time.monotonic() < deadline:
        os.sched_yield()
