"""Start a child process by a fork."""

from __future__ import annotations

import os

from pto_core import _hierarchy
from pto_core.hierarchy.processes.child_start import (
    ChildStart,
    after_fork,
    flush_output,
    run_child,
)
from pto_core.hierarchy.processes.descriptors import parent_only
from pto_core.hierarchy.processes.from_above import Place, keep, passed_on
from pto_core.hierarchy.processes.parking import parked
from pto_core.hierarchy.processes.plan import ChildPlan
from pto_core.hierarchy.processes.reports import ReportReader


def fork_child(plan: ChildPlan, parent: int) -> tuple[int, ReportReader]:
    """Fork a child; return its process id and the read end of its start-up pipe.

    ``parent``: a pidfd of this process. All registered threads are parked during the fork. Signals
    are blocked until the child has reset the parent's handlers. Raises OSError.
    """
    flush_output()
    _hierarchy.find_thread_pools()
    places = passed_on(plan)
    with parked():
        read_end, write_end = os.pipe2(os.O_CLOEXEC)
        mask = _hierarchy.block_signals()
        try:
            pid = os.fork()
            if pid == 0:
                _be_child(plan, places, parent, write_end, read_end, mask)
        except OSError:
            os.close(read_end)
            raise
        finally:
            _hierarchy.restore_signals(mask)
            os.close(write_end)
        parent_only(read_end)
    return pid, ReportReader(read_end)


def _be_child(
    plan: ChildPlan,
    places: list[Place],
    parent: int,
    reports: int,
    parents_end: int,
    mask: bytes,
) -> None:
    try:
        parent = os.dup(parent)
        after_fork([parents_end], [descriptor for descriptor, _, _ in places])
        keep(places)
        run_child(ChildStart(plan.path, reports), lambda: plan.body, parent, mask)
    finally:
        os._exit(1)
