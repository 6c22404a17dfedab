"""The methods of task handles that are written in Python: errors, results and ``await``."""

from __future__ import annotations

from collections.abc import Generator
from enum import IntEnum
from typing import Any

from pto_core._hierarchy import ContinuousTensor, TaskHandle
from pto_core.errors import PtoError
from pto_core.hierarchy.run_errors import RunErrors


class Result(IntEnum):
    """The result of a task."""

    COMPLETED = 0
    FAILED = 1
    POISONED = 2


def exception(self: TaskHandle, timeout: float | None = None) -> PtoError | None:
    """Wait for the task. Return its error if it failed or did not run, otherwise None.

    Raises TimeoutError if the task has not ended after ``timeout`` seconds.
    """
    errors = RunErrors(self.driver, self.driver.hooks.paths)
    if not self.wait(timeout):
        task = errors.place(self.task_slot, of=self)
        raise TimeoutError(f"{task.name} has not ended within {timeout} s")
    failure = self.failure
    if failure is None:
        return None
    result, cause, root = failure
    if result == Result.FAILED:
        return errors.failed(self.task_slot, cause, self)
    return errors.poisoned(self.task_slot, root, self)


def result(self: TaskHandle, timeout: float | None = None) -> Any:
    """Wait for the task. Return the array that it wrote, or a tuple if it wrote several arrays.

    Raises the error that :func:`exception` returns. Returns None for a task that was not submitted
    by a session, or that writes no array. Arrays in a heap ring are copied.
    """
    error = exception(self, timeout)
    if error is not None:
        raise error
    outputs = tuple(map(_kept, self.outputs or ()))
    return outputs[0] if len(outputs) == 1 else outputs or None


def awaited(self: TaskHandle) -> Generator[Any, None, Any]:
    """Suspend the coroutine until the task has ended; return or raise like :func:`result`."""
    yield from self.driver.hooks.event_loops.wait(self)
    return result(self)


def _kept(output: Any) -> Any:
    return output.numpy().copy() if isinstance(output, ContinuousTensor) else output


for _name, _function in (("exception", exception), ("result", result), ("__await__", awaited)):
    setattr(TaskHandle, _name, _function)
