"""Dumps: the arrays of tasks, which a run has written to files (docs/dumps.md)."""

from pto_insight.dumps.task_dump import DumpedArgument, TaskDump

__all__ = ["DumpedArgument", "TaskDump"]
