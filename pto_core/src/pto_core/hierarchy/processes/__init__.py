"""The processes of a Worker's children: how they start, exit, and are ended.

:class:`ChildProcesses` manages the processes of one Worker. Threads and file descriptors that
belong only to the parent are registered in this package: every fork parks these threads, and every
child closes these descriptors.
"""

from pto_core.hierarchy.processes.child_exit import ChildExit
from pto_core.hierarchy.processes.child_process import ChildProcess
from pto_core.hierarchy.processes.child_processes import ChildProcesses
from pto_core.hierarchy.processes.child_start import ChildStart
from pto_core.hierarchy.processes.descriptors import close_parent_only, parent_only
from pto_core.hierarchy.processes.from_above import attached_by_spawned
from pto_core.hierarchy.processes.parking import (
    Parkable,
    fork_lock,
    parked,
    refuse_inside,
    register_parkable,
)
from pto_core.hierarchy.processes.plan import ChildPlan

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
