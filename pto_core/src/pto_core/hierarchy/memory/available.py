"""Measure the free memory of the machine and of the control groups of this process."""

from __future__ import annotations

from dataclasses import dataclass

_KIB = 1024
_STRICT_OVERCOMMIT = "2"


@dataclass(frozen=True)
class Availability:
    """The number of bytes that can be used; ``limited_by`` names the limit in messages."""

    nbytes: int
    limited_by: str


def available(root: str = "") -> Availability:
    """Return the least free memory: that of the machine or of one of its control groups.

    Page cache that the kernel can drop counts as free. A file that cannot be read sets no limit.
    ``root``: a prefix for ``/proc`` and ``/sys``.
    """
    found = [_machine(root), *_groups(root)]
    return min(found, key=lambda one: one.nbytes)


def _machine(root: str) -> Availability:
    numbers = _numbers(f"{root}/proc/meminfo")
    free = Availability(numbers.get("MemAvailable", 1 << 62) * _KIB, "the memory of this machine")
    if _text(f"{root}/proc/sys/vm/overcommit_memory") != _STRICT_OVERCOMMIT:
        return free
    left = (numbers.get("CommitLimit", 0) - numbers.get("Committed_AS", 0)) * _KIB
    strict = Availability(max(left, 0), "the commit limit of this machine")
    return min(free, strict, key=lambda one: one.nbytes)


def _groups(root: str) -> list[Availability]:
    """Return the free memory of each limited control group that contains this process."""
    found = []
    for line in _text(f"{root}/proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            top, reader = f"{root}/sys/fs/cgroup", _group_of_version_2
        elif "memory" in controllers.split(","):
            top, reader = f"{root}/sys/fs/cgroup/memory", _group_of_version_1
        else:
            continue
        group = path.rstrip("/")
        while True:
            left = reader(f"{top}{group}")
            if left is not None:
                found.append(Availability(max(left, 0), f"the control group {top}{group}"))
            if not group:
                break
            group = group.rpartition("/")[0]
    return found


def _group_of_version_2(group: str) -> int | None:
    limit = _text(f"{group}/memory.max")
    if not limit.isdecimal():
        return None
    used = int(_text(f"{group}/memory.current") or 0)
    return int(limit) - used + _numbers(f"{group}/memory.stat").get("inactive_file", 0)


def _group_of_version_1(group: str) -> int | None:
    limit = _text(f"{group}/memory.limit_in_bytes")
    if not limit.isdecimal() or int(limit) >= 1 << 60:
        return None
    used = int(_text(f"{group}/memory.usage_in_bytes") or 0)
    return int(limit) - used + _numbers(f"{group}/memory.stat").get("total_inactive_file", 0)


def _numbers(path: str) -> dict[str, int]:
    """Return the numbers in a file whose lines contain a name, a number and an optional unit."""
    found = {}
    for line in _text(path).splitlines():
        name, _, rest = line.replace(":", " ").partition(" ")
        words = rest.split()
        if words and words[0].isdecimal():
            found[name] = int(words[0])
    return found


def _text(path: str) -> str:
    """Return the text of a file; an empty text if it cannot be read."""
    try:
        with open(path) as opened:
            return opened.read().strip()
    except OSError:
        return ""
