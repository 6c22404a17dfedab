"""How much memory the machine and the control group leave free at this moment."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

_KIB = 1024
_STRICT_OVERCOMMIT = "2"


@dataclass(frozen=True)
class Availability:
    """``nbytes`` that can be used, and ``limited_by`` what says so, for messages."""

    nbytes: int
    limited_by: str


def available(root: Path = Path("/")) -> Availability:
    """Look at the machine and at every control group that this process is in.

    What could be dropped (page cache) counts as free. ``root`` is where ``proc`` and ``sys`` are.
    What cannot be read sets no limit.
    """
    found = [_machine(root), *_groups(root)]
    return min(found, key=lambda one: one.nbytes)


def _machine(root: Path) -> Availability:
    numbers = _numbers(root / "proc/meminfo")
    free = Availability(numbers.get("MemAvailable", 1 << 62) * _KIB, "the memory of this machine")
    if _text(root / "proc/sys/vm/overcommit_memory") != _STRICT_OVERCOMMIT:
        return free
    left = (numbers.get("CommitLimit", 0) - numbers.get("Committed_AS", 0)) * _KIB
    strict = Availability(max(left, 0), "the commit limit of this machine")
    return min(free, strict, key=lambda one: one.nbytes)


def _groups(root: Path) -> list[Availability]:
    """Give what each control group with a limit leaves, from ours up; versions 1 and 2."""
    found = []
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            top, reader = root / "sys/fs/cgroup", _group_of_version_2
        elif "memory" in controllers.split(","):
            top, reader = root / "sys/fs/cgroup/memory", _group_of_version_1
        else:
            continue
        folder = top / path.strip("/")
        for group in (folder, *folder.parents):
            left = reader(group) if group.is_relative_to(top) else None
            if left is not None:
                found.append(Availability(max(left, 0), f"the control group {group}"))
    return found


def _group_of_version_2(group: Path) -> int | None:
    limit, used = _text(group / "memory.max"), _text(group / "memory.current")
    if not limit.isdecimal() or not used.isdecimal():
        return None
    return int(limit) - int(used) + _numbers(group / "memory.stat").get("inactive_file", 0)


def _group_of_version_1(group: Path) -> int | None:
    limit, used = _text(group / "memory.limit_in_bytes"), _text(group / "memory.usage_in_bytes")
    if not limit.isdecimal() or not used.isdecimal() or int(limit) >= 1 << 60:
        return None
    return int(limit) - int(used) + _numbers(group / "memory.stat").get("total_inactive_file", 0)


def _numbers(path: Path) -> dict[str, int]:
    """Read lines of a name and a number; a unit may follow."""
    found = {}
    for line in _text(path).splitlines():
        name, _, rest = line.replace(":", " ").partition(" ")
        words = rest.split()
        if words and words[0].isdecimal():
            found[name] = int(words[0])
    return found


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
