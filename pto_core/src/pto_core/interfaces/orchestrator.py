"""The orchestrator interface: the object to which a graph function submits its tasks.

A graph function of a Worker::

    from pto_core import TaskArgs, Worker
    from pto_core.interfaces import Orchestrator

    def graph(orch: Orchestrator, args: object, config: object) -> None:
        first = orch.submit_sub(prepare)
        with orch.scope():
            orch.submit_sub(finish, TaskArgs(), after=[first])

    with Worker(3, num_sub_workers=2) as worker:
        prepare, finish = worker.register(print), worker.register(print)
        worker.run(graph)
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from pto_core._worker import CallableHandle, ContinuousTensor, TaskArgs, TaskHandle


class Orchestrator(Protocol):
    """Accepts the tasks of one run. Valid until the graph function returns or the session ends.

    Any thread may submit until then; later it refuses all calls, also during another run. Submits
    have one order, in which those of a thread keep theirs, and dependencies follow it. A scope
    belongs to the run: it is the innermost scope of all threads, so open and close scopes while no
    other thread submits.

    A submit derives dependencies from the tags in ``args`` and does not wait for the task. It
    blocks only while a heap ring or the table of tasks has no free space. A submit raises
    :class:`~pto_core.errors.UsageError` for invalid arguments; no task was submitted in this case.

    ``worker``: the child that runs the task or, with ``hint``, the preferred child; with -1, the
    placement policy chooses. ``retries``: how often the task may run again. ``timeout_s``: the
    limit of the task's time in the child. ``after``: additional tasks that must end before it.
    """

    def submit_next_level(
        self,
        handle: CallableHandle,
        args: TaskArgs | None,
        config: object | None = None,
        *,
        worker: int = -1,
        retries: int = 0,
        timeout_s: float | None = None,
        hint: bool = False,
        after: Sequence[TaskHandle] = (),
    ) -> TaskHandle:
        """Submit a task for a chip or a child Worker; ``config`` is its CallConfig."""

    def submit_next_level_group(
        self,
        handle: CallableHandle,
        args_list: Sequence[TaskArgs],
        config: object | None = None,
        *,
        workers: Sequence[int] | None = None,
        retries: int = 0,
        timeout_s: float | None = None,
        hint: bool = False,
        after: Sequence[TaskHandle] = (),
    ) -> TaskHandle:
        """Submit one task that runs on several chips or child Workers, with arguments for each."""

    def submit_sub(
        self,
        handle: CallableHandle,
        args: TaskArgs | None = None,
        *,
        worker: int = -1,
        retries: int = 0,
        timeout_s: float | None = None,
        hint: bool = False,
        after: Sequence[TaskHandle] = (),
    ) -> TaskHandle:
        """Submit a task for a SUB child."""

    def submit_sub_group(
        self,
        handle: CallableHandle,
        args_list: Sequence[TaskArgs],
        *,
        workers: Sequence[int] | None = None,
        retries: int = 0,
        timeout_s: float | None = None,
        hint: bool = False,
        after: Sequence[TaskHandle] = (),
    ) -> TaskHandle:
        """Submit one task that runs on several SUB children, with arguments for each."""

    def alloc(self, shape: int | Sequence[int], dtype: Any) -> ContinuousTensor:
        """Allocate a tensor in the heap ring of the innermost scope.

        Its memory is reused after the scope has ended and the last task that uses it has ended.
        """

    def scope(self) -> AbstractContextManager[None]:
        """Return a context manager that limits the lifetime of the memory allocated inside it."""
