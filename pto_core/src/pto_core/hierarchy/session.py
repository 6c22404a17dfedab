"""A run whose body is a block: ``with worker.session() as s:``."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeAlias, Unpack, cast, overload

from pto_core._hierarchy import (
    CallableHandle,
    ContinuousTensor,
    Orchestrator,
    RunScope,
    TaskArgs,
    TaskHandle,
)
from pto_core.errors import AbortedError, UsageError
from pto_core.hierarchy.chip_task import chip_arguments
from pto_core.hierarchy.progress import Follower, Listener, default_listener
from pto_core.hierarchy.tasks import Task
from pto_core.kernels import CallConfig, ChipCallable, DataType

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from pto_core.hierarchy.runs import Runs
    from pto_core.hierarchy.worker import Worker
    from pto_core.kernels.typed import (
        A,
        B,
        C,
        D,
        E,
        F,
        SubmitOptions,
        Tensor,
        TypedTask,
    )

Submittable: TypeAlias = "Task[...] | ChipCallable | CallableHandle"
"""What a session submits: a ``@task``, a ChipCallable, or the handle of one."""


class Session(RunScope):
    """Submits tasks for as long as its block is open; made by :meth:`Worker.session`.

    At the end of the block all tasks are waited for, and the first failure is raised. When the
    block itself raises, what has not been sent does not run. With ``async with`` the waiting leaves
    the event loop free.
    """

    def __init__(
        self, worker: Worker, config: CallConfig | None, hazards: str, progress: bool | Listener
    ) -> None:
        super().__init__()
        self._worker = worker
        self._config = config
        self._hazards = hazards
        self._progress = progress
        self._follower: Follower | None = None
        self._runs: Runs | None = None

    # ---- the block ----

    def __enter__(self) -> Session:
        runs = self._worker.started_runs()
        try:
            runs.begin(self, self._hazards, self._config)
            self._runs = runs
            if self._progress is not False:
                shown = self._progress
                listener = default_listener(self._worker.path) if shown is True else shown
                follower = Follower(runs.progress, listener)
                follower.start()
                self._follower = follower
        except BaseException as error:
            self.__exit__(type(error), error, error.__traceback__)
            raise
        return self

    def _leave(self, error: BaseException | None) -> None:
        """End the run; ``__exit__`` calls it, and ends the run itself where this is interrupted."""
        runs, self._runs = self._runs, None
        try:
            if runs is not None:
                runs.leave(error)
        finally:
            follower, self._follower = self._follower, None
            if follower is not None and runs is not None:
                follower.stop(runs.progress(is_over=True))

    async def __aenter__(self) -> Session:
        return self.__enter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        runs = self._runs
        assert runs is not None
        end = asyncio.ensure_future(asyncio.to_thread(self.__exit__, kind, error, trace))
        try:
            await asyncio.shield(end)
        except asyncio.CancelledError:
            # The thread does not hear of it by itself, and the Worker must not be left to it.
            if not end.done():
                runs.interrupt(AbortedError("the wait for the end of the run was cancelled"))
                await asyncio.wait([end])
                end.exception()  # the cancellation is raised
            raise

    # ---- inside the block ----

    @overload
    def submit(
        self,
        task: ChipCallable | CallableHandle,
        /,
        *args: object,
        **options: Unpack[SubmitOptions],
    ) -> TaskHandle: ...

    @overload
    def submit(self, task: TypedTask[[]], /, **options: Unpack[SubmitOptions]) -> TaskHandle: ...

    @overload
    def submit(
        self, task: TypedTask[[A]], a: A | Tensor, /, **options: Unpack[SubmitOptions]
    ) -> TaskHandle: ...

    @overload
    def submit(
        self,
        task: TypedTask[[A, B]],
        a: A | Tensor,
        b: B | Tensor,
        /,
        **options: Unpack[SubmitOptions],
    ) -> TaskHandle: ...

    @overload
    def submit(
        self,
        task: TypedTask[[A, B, C]],
        a: A | Tensor,
        b: B | Tensor,
        c: C | Tensor,
        /,
        **options: Unpack[SubmitOptions],
    ) -> TaskHandle: ...

    @overload
    def submit(
        self,
        task: TypedTask[[A, B, C, D]],
        a: A | Tensor,
        b: B | Tensor,
        c: C | Tensor,
        d: D | Tensor,
        /,
        **options: Unpack[SubmitOptions],
    ) -> TaskHandle: ...

    @overload
    def submit(
        self,
        task: TypedTask[[A, B, C, D, E]],
        a: A | Tensor,
        b: B | Tensor,
        c: C | Tensor,
        d: D | Tensor,
        e: E | Tensor,
        /,
        **options: Unpack[SubmitOptions],
    ) -> TaskHandle: ...

    @overload
    def submit(
        self,
        task: TypedTask[[A, B, C, D, E, F]],
        a: A | Tensor,
        b: B | Tensor,
        c: C | Tensor,
        d: D | Tensor,
        e: E | Tensor,
        f: F | Tensor,
        /,
        **options: Unpack[SubmitOptions],
    ) -> TaskHandle: ...

    @overload
    def submit(
        self,
        task: TypedTask[...],
        a: object,
        b: object,
        c: object,
        d: object,
        e: object,
        f: object,
        g: object,
        /,
        *rest: object,
        **options: Unpack[SubmitOptions],
    ) -> TaskHandle: ...

    def submit(
        self,
        task: Submittable | TypedTask[...],
        /,
        *args: object,
        worker: int | None = None,
        hint: bool = False,
        retries: int | None = None,
        timeout_s: float | None = None,
        after: Sequence[TaskHandle] = (),
        config: CallConfig | None = None,
    ) -> TaskHandle:
        """Submit a task, and give what it can be waited for with.

        It runs when the tasks that wrote what it reads have, those that use what it overwrites, and
        those in ``after``. ``worker``: the child that runs it or, with ``hint``, the one that
        should if it has room; without, an idle one. ``retries``: how often it may run again,
        instead of what ``@task`` says. ``timeout_s``: the limit for its time in the child. Raises
        UsageError.
        """
        to = self.orchestrator
        call = self._call(task, args)
        submit = to.submit_next_level if call.is_chips else to.submit_sub
        submitted: TaskHandle = submit(
            *_positional(call, call.args, config),
            worker=-1 if worker is None else worker,
            hint=hint,
            retries=call.retries if retries is None else retries,
            timeout_s=timeout_s,
            after=after,
        )
        submitted.outputs = call.written
        return submitted

    def submit_group(
        self,
        task: Submittable,
        members: Sequence[Sequence[object]],
        *,
        workers: Sequence[int] | None = None,
        hint: bool = False,
        retries: int | None = None,
        timeout_s: float | None = None,
        after: Sequence[TaskHandle] = (),
        config: CallConfig | None = None,
    ) -> TaskHandle:
        """Submit one task that runs on as many children at once as ``members`` has arguments.

        ``workers``: the child of each, all different; with ``hint``, the ones that should.
        """
        to = self.orchestrator
        calls = [self._call(task, args) for args in members]
        if not calls:
            raise UsageError("a group without members; give the arguments of one at least")
        first = calls[0]
        submit = to.submit_next_level_group if first.is_chips else to.submit_sub_group
        submitted: TaskHandle = submit(
            *_positional(first, [call.args or TaskArgs() for call in calls], config),
            workers=workers,
            hint=hint,
            retries=first.retries if retries is None else retries,
            timeout_s=timeout_s,
            after=after,
        )
        submitted.outputs = tuple(array for call in calls for array in call.written)
        return submitted

    def empty(
        self, shape: int | Sequence[int], dtype: DTypeLike | DataType = "float32"
    ) -> ContinuousTensor:
        """Give a tensor of the heap ring for an intermediate result.

        It is gone when its scope has ended and no task needs it any more.
        """
        extents = (shape,) if isinstance(shape, int) else tuple(shape)
        return self.orchestrator.alloc(extents, dtype)

    def scope(self) -> AbstractContextManager[None]:
        """Open a scope: what is allocated in it is given back as soon as it has ended."""
        return cast(AbstractContextManager[None], self.orchestrator.scope())

    @property
    def orchestrator(self) -> Orchestrator:
        """The object that graph functions get, for what has no typed form."""
        if self._runs is None:
            raise UsageError("a session submits inside its block: `with worker.session() as s:`")
        return self._runs.orchestrator

    def _call(self, task: Submittable | TypedTask[...], args: Sequence[Any]) -> _Call:
        handle, target = self._worker.submittable(task)
        if isinstance(target, ChipCallable):
            return _Call(handle, *chip_arguments(target, args), 0, is_chips=True)
        if isinstance(target, Task):
            return _Call(handle, *target.arguments(args), target.retries, is_chips=False)
        raise UsageError(
            f"{task!r} is not typed, so a session cannot tell what it does with its arguments; "
            "put @task before its function, or use s.orchestrator.submit_sub with a TaskArgs",
            name="task",
            value=task,
        )


@dataclass(frozen=True)
class _Call:
    handle: CallableHandle
    args: TaskArgs | None
    written: tuple[Any, ...]
    retries: int
    is_chips: bool


def _positional(call: _Call, args: object, config: CallConfig | None) -> tuple[Any, ...]:
    """Give what a submit takes by position; SUB children have no use for a configuration."""
    return (call.handle, args, config) if call.is_chips else (call.handle, args)
