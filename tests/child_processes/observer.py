"""Processes that are observed from outside, and their visible resources."""

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
"""The maximum time that an observed process takes to end, on a busy machine."""
INTERRUPTED = 130
OWN_FAULT = 70
"""The exit code of a process that found a resource left behind, or dropped an interrupt."""
SAY_WHERE = signal.SIGUSR2
WEAK_REFERENCES = ("weakref", "_weakrefset")

_stacks: dict[int, int] = {}
"""The files to which observed processes write their stacks, by process id."""


@contextlib.contextmanager
def planted(run: Callable[[int], None]) -> Iterator[tuple[int, int]]:
    """Fork a process that calls ``run`` with a pipe; return the process and the read end."""
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
    """Wait for the end of a process and return its exit code; after a timeout, show its stacks.

    The code is negative if a signal ended the process.
    """
    if not has_ended(top, END_S):
        where = f"still running after {END_S} s, with descendants {below(top)}:\n{stacks_of(top)}"
        os.kill(top, signal.SIGKILL)
        os.waitpid(top, 0)
        raise AssertionError(where)
    return os.waitstatus_to_exitcode(os.waitpid(top, 0)[1])


def has_ended(pid: int, timeout_s: float) -> bool:
    """Return whether a child of this process ends within that time."""
    descriptor = os.pidfd_open(pid)
    try:
        return is_readable(descriptor, timeout_s)
    finally:
        os.close(descriptor)


def is_readable(descriptor: int, timeout_s: float) -> bool:
    """Return whether there is data to read, or all writers have closed, within that time."""
    return bool(select.select([descriptor], [], [], timeout_s)[0])


def stacks_of(top: int) -> str:
    """Return the stacks of all threads of a process, twice, to show whether it makes progress."""
    for _ in range(2):
        os.kill(top, SAY_WHERE)
        has_ended(top, 0.5)
    stacks = os.pread(_stacks[top], 1 << 20, 0).decode(errors="replace")
    kernel = [task.read_text() for task in Path(f"/proc/{top}/task").glob("*/wchan")]
    return f"{stacks}\nin the kernel: {kernel}"


def interrupt_again(dropped: Any) -> None:
    """Report an interrupt that CPython dropped, and send it again a little later.

    CPython drops an exception where it runs Python code itself: in the callback of a weak reference
    or in a ``__del__``. A library cannot prevent that, but it can avoid such callbacks.
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
    """Repeat the action; after an interrupt, check that it left no resource in this process."""
    before = descriptors(), mappings(os.getpid())
    try:
        while True:
            once()
    except KeyboardInterrupt as interruption:
        clear_frames(interruption)
        gc.collect()
        found = descriptors(), mappings(os.getpid())
        if children(os.getpid()) or found != before:
            message = f"left: {children(os.getpid())} {found} instead of {before}\n"
            os.write(2, message.encode())
            os._exit(OWN_FAULT)
        raise


def descriptors() -> dict[int, str]:
    """Return what each open descriptor of this process refers to."""
    found = {}
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # the descriptor that lists the folder
            found[int(name)] = os.readlink(f"/proc/self/fd/{name}")
    return found


def clear_frames(error: BaseException | None) -> None:
    """Drop the local variables of the calls that raised."""
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error.__traceback__ = None  # cleared frames still reference the variables of their closures
        error = error.__context__


def children(pid: int) -> list[int]:
    """Return the processes that a process has started, oldest first."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):
            found += map(int, (task / "children").read_text().split())
    return sorted(found)


def below(pid: int) -> list[int]:
    """Return all processes that a process and its descendants have started."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for child in children(pid):
            found += [child, *below(child)]
    return found


def mappings(pid: int) -> int:
    """Return the number of mappings of Workers in a process; 0 if the process is gone."""
    try:
        with open(f"/proc/{pid}/maps") as lines:
            return sum("pto-worker" in line for line in lines)
    except OSError:
        return 0


def left_of(pids: list[int]) -> list[int]:
    """Return the processes that still exist after a moment in which processes can end."""
    deadline = time.monotonic() + PATIENCE_S
    while left := [pid for pid in pids if not is_gone(pid)]:
        if time.monotonic() > deadline:
            break
        time.sleep(0.001)
    return left


def is_gone(pid: int) -> bool:
    """Return whether the process has exited, even if its status was not collected."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def spin_until(deadline: float) -> None:
    """Wait without sleeping, because the end of a sleep is less exact."""
    while time.monotonic() < deadline:
        os.sched_yield()
