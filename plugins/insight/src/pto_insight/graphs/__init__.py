"""Graphs of programs: the memory that tasks name, the reasons for their order, and races."""

from pto_insight.graphs.analysis import Why
from pto_insight.graphs.findings import Findings, Mismatch, Race
from pto_insight.graphs.graph import Explanation, TaskGraph
from pto_insight.graphs.log import AccessLog
from pto_insight.graphs.logged_graph import Edge, LoggedTask, Reason

__all__ = [
    "AccessLog",
    "Edge",
    "Explanation",
    "Findings",
    "LoggedTask",
    "Mismatch",
    "Race",
    "Reason",
    "TaskGraph",
    "Why",
]
