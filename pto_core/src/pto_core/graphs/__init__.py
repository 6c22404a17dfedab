"""Graphs of programs: what a program's tasks name, why they are ordered, and which of them race."""

from pto_core.graphs.explanation import Explanation
from pto_core.graphs.findings import Findings, Mismatch, Race
from pto_core.graphs.graph import TaskGraph
from pto_core.graphs.log import AccessLog
from pto_core.graphs.logged_graph import Edge, Reason, Task
from pto_core.graphs.reasons import Why

__all__ = [
    "AccessLog",
    "Edge",
    "Explanation",
    "Findings",
    "Mismatch",
    "Race",
    "Reason",
    "Task",
    "TaskGraph",
    "Why",
]
