"""What can be asked of a submitted task, beside what its native handle answers by itself."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from pto_core._hierarchy import ContinuousTensor, TaskHandle
from pto_core.errors import PtoError
from pto_core.hierarchy.engine.instructions import Result

if TYPE_CHECKING:
    from pto_core.hierarchy.runs import Runs


def exception(self: TaskHandle, timeout: float | None = None) -> PtoError | None:
    """Wait for the task and give why it failed or did not run, None if it completed.

    Raises TimeoutError after ``timeout`` seconds.
    """
    runs: Runs = self.driver.hooks.runs
    if not self.wait(timeout):
        task = runs.place(self.task_slot, of=self)
        raise TimeoutError(f"{task.name} has not ended within {timeout} s")
    failure = self.failure
    if failure is None:
        return None
    result, cause, root = failure
    if result == Result.FAILED:
        return runs.error_of(self.task_slot, cause, self)
    return runs.poisoned(self.task_slot, root, self)


def result(self: TaskHandle, timeout: float | None = None) -> Any:
    """Wait for the task and give the array that it wrote, a tuple of them if there are several.

    Raises why it failed or did not run. Of a task that was not submitted by a session, or that
    writes nothing, it gives None. What lies in a heap ring is copied.
    """
    error = exception(self, timeout)
    if error is not None:
        raise error
    outputs = tuple(map(_kept, self.outputs or ()))
    return outputs[0] if len(outputs) == 1 else outputs or None


def awaited(self: TaskHandle) -> Generator[Any, None, Any]:
    """Return or raise what :func:`result` does; only the coroutine waits, and no thread does."""
    yield from self.driver.hooks.event_loops.wait(self)
    return result(self)


def _kept(output: Any) -> Any:
    return output.numpy().copy() if isinstance(output, ContinuousTensor) else output


for _name, _function in (("exception", exception), ("result", result), ("__await__", awaited)):
    setattr(TaskHandle, _name, _function)
