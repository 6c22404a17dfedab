"""Graphs of programs: what a program's tasks name, why they are ordered, and which of them race."""

from pto_insight.graphs.explanation import Explanation
from pto_insight.graphs.findings import Findings, Mismatch, Race
from pto_insight.graphs.graph import TaskGraph
from pto_insight.graphs.log import AccessLog
from pto_insight.graphs.logged_graph import Edge, Reason, Task
from pto_insight.graphs.reasons import Why

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
