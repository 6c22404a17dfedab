"""The processes of a Worker's children: how they start, exit, and are ended.

:class:`ChildProcesses` manages the processes of one Worker. Threads and file descriptors that
belong only to the parent are registered in this package: every fork parks these threads, and every
child closes these descriptors.
"""

from pto_core.worker.processes.child_process import ChildExit, ChildProcess
from pto_core.worker.processes.child_processes import ChildProcesses
from pto_core.worker.processes.parking import (
    Parkable,
    close_parent_only,
    fork_lock,
    parent_only,
    parked,
    refuse_inside,
    register_parkable,
)
from pto_core.worker.processes.starting import ChildPlan, ChildStart, attached_by_spawned

__all__ = [
    "ChildExit",
    "ChildPlan",
    "ChildProcess",
    "ChildProcesses",
    "ChildStart",
    "Parkable",
    "attached_by_spawned",
    "close_parent_only",
    "fork_lock",
    "parent_only",
    "parked",
    "refuse_inside",
    "register_parkable",
]
