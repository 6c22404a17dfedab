"""Add the arguments of a graph function, which a child Worker runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pto_core._hierarchy import TaskArgs, TensorArgType
from pto_core._native import number
from pto_core.errors import UsageError
from pto_core.errors.values import shown
from pto_core.hierarchy.chip_task import add_array
from pto_core.hierarchy.remote_buffers import RemoteTaskArgs, RemoteTensorRef


@dataclass(frozen=True)
class GraphTask:
    """A graph function that a session can submit in the same way as a :class:`pto_core.Task`.

    Its parameters have no directions, so each array is read and written.
    """

    name: str
    retries: int = 0

    def arguments(self, values: Sequence[Any]) -> tuple[TaskArgs | None, tuple[Any, ...]]:
        """Return the arguments of a submit, or None, and the arrays that the task writes.

        The function receives the arrays as ``args.tensor(0)`` and so on, and the integers as
        ``args.scalar(0)`` and so on; one that may be negative is ``args.scalar(0, int)``. A
        TaskArgs must be the only value; it states the use of each
        array. Raises UsageError for a number that is not an integer.
        """
        if len(values) == 1 and isinstance(values[0], TaskArgs):
            return values[0], ()
        is_remote = any(isinstance(value, RemoteTensorRef) for value in values)
        args, written = RemoteTaskArgs() if is_remote else TaskArgs(), []
        for index, value in enumerate(values):
            where = f"argument {index} of the graph function {self.name}"
            scalar = number(value)
            if scalar is None:
                add_array(args, value, TensorArgType.INOUT, where)
                written.append(value)
            elif isinstance(scalar[1], int):
                args.add_scalar(scalar[0])
            else:
                raise UsageError(
                    f"{where} is {shown(value)}; a graph function receives arrays and integers "
                    "only; pass this value in an array",
                    name=self.name,
                    value=value,
                )
        return (args if values else None), tuple(written)
