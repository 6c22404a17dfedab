"""The changes of a program that a check advises."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pto_core.graphs.log import AccessLog
    from pto_core.graphs.logged_graph import Task


def missing_edge(log: AccessLog, first: Task, second: Task) -> str:
    """Return the change that orders two tasks, in the language of the program."""
    edge = f"add an edge from {first.label} to {second.label}"
    if not log.has_accesses:
        return edge
    if second.file and second.file.endswith(".py"):
        edge = f"submit {second.label} with after={first.label}"
    elif second.file:
        edge = f"call pto2_rt_add_dep for {first.label} and {second.label} after the second submit"
    return edge if log.is_full else f"run with {_full_hazards(second)}, or {edge}"


def existing_output(second: Task) -> str:
    """Return the change of a declaration OUTPUT_EXISTING that leaves two writers unordered."""
    return f"declare it OUTPUT or INOUT in {second.label}, with {_full_hazards(second)}"


def _full_hazards(task: Task) -> str:
    is_python = task.file is None or task.file.endswith(".py")
    return 'hazards="full"' if is_python else "--hazards full"
