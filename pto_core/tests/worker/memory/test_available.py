"""The free memory of machine and control groups, read from folders that a test writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from pto_core.worker.memory import available

MIB = 1 << 20


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write(tmp_path / "proc/meminfo", "MemTotal: 8192 kB\nMemAvailable: 4096 kB\n")
    write(tmp_path / "proc/sys/vm/overcommit_memory", "0\n")
    write(tmp_path / "proc/self/cgroup", "")
    return tmp_path


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_without_groups_the_memory_of_the_machine_counts(root: Path) -> None:
    found = available(str(root))
    assert (found.nbytes, found.limited_by) == (4 * MIB, "the memory of this machine")


def test_the_tightest_group_above_us_counts_and_its_cache_is_free(root: Path) -> None:
    write(root / "proc/self/cgroup", "0::/outer/inner\n")
    groups = root / "sys/fs/cgroup"
    write(groups / "outer/memory.max", f"{2 * MIB}\n")
    write(groups / "outer/memory.current", f"{3 * MIB // 2}\n")
    write(groups / "outer/memory.stat", f"anon 5\ninactive_file {MIB // 4}\n")
    write(groups / "outer/inner/memory.max", "max\n")
    write(groups / "outer/inner/memory.current", "1000\n")
    found = available(str(root))
    assert found.nbytes == 3 * MIB // 4
    assert found.limited_by.endswith("/outer")


def test_the_limit_of_the_root_group_counts(root: Path) -> None:
    """A container with its own control groups sees its limit there."""
    write(root / "proc/self/cgroup", "0::/\n")
    groups = root / "sys/fs/cgroup"
    write(groups / "memory.max", f"{2 * MIB}\n")
    write(groups / "memory.current", f"{MIB}\n")
    write(groups / "memory.stat", "anon 5\n")
    found = available(str(root))
    assert found.nbytes == MIB
    assert found.limited_by.endswith("/cgroup")


def test_a_group_that_is_full_leaves_nothing(root: Path) -> None:
    write(root / "proc/self/cgroup", "4:memory:/box\n0::/\n")
    group = root / "sys/fs/cgroup/memory/box"
    write(group / "memory.limit_in_bytes", f"{MIB}\n")
    write(group / "memory.usage_in_bytes", f"{2 * MIB}\n")
    write(group / "memory.stat", "total_inactive_file 10\n")
    assert available(str(root)).nbytes == 0


def test_strict_overcommit_counts_promises(root: Path) -> None:
    write(root / "proc/sys/vm/overcommit_memory", "2\n")
    write(
        root / "proc/meminfo", "MemAvailable: 4096 kB\nCommitLimit: 3000 kB\nCommitted_AS: 1000 kB"
    )
    found = available(str(root))
    assert (found.nbytes, found.limited_by) == (2000 * 1024, "the commit limit of this machine")


def test_this_machine_has_memory() -> None:
    assert available().nbytes > 0
