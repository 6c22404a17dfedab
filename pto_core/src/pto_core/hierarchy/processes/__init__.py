"""The processes of a Worker's children: starting, watching and ending them.

:class:`ChildProcesses` has those of one Worker. Whatever has threads or descriptors of the parent's
side registers them here: the former are parked at every fork, the latter closed in every child.
"""

from pto_core.hierarchy.processes.child_process import ChildEnding, ChildProcess
from pto_core.hierarchy.processes.child_processes import ChildProcesses
from pto_core.hierarchy.processes.child_start import ChildStart
from pto_core.hierarchy.processes.descriptors import close_parent_only, parent_only
from pto_core.hierarchy.processes.from_above import attached_by_children
from pto_core.hierarchy.processes.parking import (
    Parkable,
    parked,
    refuse_inside,
    register_parkable,
)
from pto_core.hierarchy.processes.plan import ChildPlan

__all__ = [
    "ChildEnding",
    "ChildPlan",
    "ChildProcess",
    "ChildProcesses",
    "ChildStart",
    "Parkable",
    "attached_by_children",
    "close_parent_only",
    "parent_only",
    "parked",
    "refuse_inside",
    "register_parkable",
]
