"""Processes that are watched from outside, and what can be seen of them."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

PATIENCE_S = 10
INTERRUPTED = 130
OWN_FAULT = 70
"""The code of a watched process that found something of its own left."""


@contextlib.contextmanager
def planted(run: Callable[[int], None]) -> Iterator[tuple[int, int]]:
    """Fork a process that calls ``run`` with where it may write; gives it and where to read."""
    read_end, write_end = os.pipe()
    top = os.fork()
    if top == 0:
        code = OWN_FAULT
        try:
            os.close(read_end)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            run(write_end)
            code = 0
        except KeyboardInterrupt:
            code = INTERRUPTED
        finally:
            os._exit(code)
    os.close(write_end)
    try:
        yield top, read_end
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(top, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(top, 0)
        os.close(read_end)


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
            words = f"left: {children(os.getpid())} {found} instead of {before}\n"
            os.write(2, words.encode())
            os._exit(OWN_FAULT)
        raise


def clear_frames(error: BaseException | None) -> None:
    """Let go of what the calls had at hand that an exception came out of."""
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
    """Whether it has ended, though perhaps nobody has waited for it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def spin_until(deadline: float) -> None:
    """Be exact to the microsecond, as far as the machine lets us."""
    while time.monotonic() < deadline:
        os.sched_yield()
