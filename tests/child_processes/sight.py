"""The visible resources of a process, as another process sees them."""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path


@dataclass
class Sight:
    """The resources of a process at one instant, as far as other processes see them."""

    descriptors: Counter[str]
    shared_mappings: Counter[str]
    processes: set[int]
    shared_memory: set[str]

    @classmethod
    def of(cls, pid: int) -> Sight:
        descriptors: Counter[str] = Counter()
        for one in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                descriptors[os.readlink(one).partition(":[")[0]] += 1
        mappings = Counter(name for name, _ in shared_mappings(pid))
        return cls(descriptors, mappings, session(pid), set(os.listdir("/dev/shm")))

    def differences(self, before: Sight) -> list[str]:
        found = []
        for name in ("descriptors", "shared_mappings", "processes"):
            then, now = getattr(before, name), getattr(self, name)
            if then != now:
                found.append(f"{name} {now - then or ''} more, {then - now or ''} fewer")
        if more := self.shared_memory - before.shared_memory:
            found.append(f"/dev/shm has {more}")
        return found


def shared_mappings(pid: int) -> list[tuple[str, str]]:
    """Return name and inode of each mapping of a process that other processes may share."""
    found = []
    with contextlib.suppress(OSError), open(f"/proc/{pid}/maps") as lines:
        for line in lines:
            _, access, _, device, inode, *name = line.split(maxsplit=5)
            if access.endswith("s"):
                found.append((name[0].strip() if name else "", f"{device}/{inode}"))
    return found


def worker_memory(pids: Iterable[int]) -> set[str]:
    """Return the places of the memory of Workers that processes have mapped.

    What the calling process has mapped too is not of a Worker that it observes: forked processes
    inherit the memory of a device that this process lost in another test.
    """
    own = set(shared_mappings(os.getpid()))
    found = {one for pid in pids for one in shared_mappings(pid) if "pto-" in one[0]}
    return {place for _, place in found - own}


def session(leader: int) -> set[int]:
    """Return all processes of a session that are not zombies."""
    found = set()
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            after_name = (entry / "stat").read_text().rpartition(")")[2].split()
            if int(after_name[3]) == leader and after_name[0] not in "ZX":
                found.add(int(entry.name))
    return found


def processes_with(places: set[str]) -> list[int]:
    """Return the processes of this machine that have one of the mappings ``places``."""
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return [pid for pid in pids if any(place in places for _, place in shared_mappings(pid))]
