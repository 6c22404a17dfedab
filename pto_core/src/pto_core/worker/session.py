"""A run whose tasks are submitted in a block: ``with worker.session() as s:``."""

from __future__ import annotations

import asyncio
import itertools
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar, Unpack, cast, overload

from pto_core._native import integer
from pto_core._worker import (
    CallableHandle,
    ContinuousTensor,
    Orchestrator,
    RunScope,
    TaskArgs,
    TensorArgType,
)
from pto_core.config.options import CHECK
from pto_core.errors import UsageError
from pto_core.errors.values import explain_names, invalid_value, listed, shown
from pto_core.kernels import CallConfig, ChipCallable, DataType
from pto_core.kernels.retries import NO_RETRIES, Retries, as_retries
from pto_core.kernels.typed import SubmitOptions
from pto_core.notebooks import html_table
from pto_core.plugins import insight, observation
from pto_core.progress import Follower, Listener, default_listener
from pto_core.worker.event_loops import in_thread
from pto_core.worker.futures import TaskHandle
from pto_core.worker.handles import name_of
from pto_core.worker.host_accesses import HostAccesses
from pto_core.worker.runs import hazards_number
from pto_core.worker.tasks import (
    ChipTask,
    GraphTask,
    Task,
    add_array,
    of_argument,
    task as as_task,
    unbound,
)
from pto_core.worker.values import Returned, ValueMemory, of_group

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from pto_core.kernels.typed import (
        A,
        B,
        C,
        D,
        E,
        F,
        Outcome,
        Parameters,
        Tensor,
        TypedTask,
    )
    from pto_core.worker.callables import Callables
    from pto_core.worker.registry import Registration
    from pto_core.worker.runs import Runs
    from pto_core.worker.worker_node import WorkerNode
    from pto_insight.graphs.session_log import SessionLog

_PATIENCE_S = 10.0  # the longest wait for another thread that begins or ends a shared session
_OPTIONS = tuple(SubmitOptions.__annotations__)
Item = TypeVar("Item")
Mapped = TypeVar("Mapped")

Submittable: TypeAlias = "Task[..., Any] | ChipCallable | CallableHandle"
"""A task that a session accepts: a ``@task``, a ChipCallable, or a handle.

A Worker with child Workers also accepts the handle of a graph function.
"""


class TaskSubmitter:
    """Submits tasks: the part that a :class:`Session` and a :class:`pto_core.Worker` share."""

    _shared: SharedSession

    def __reduce__(self) -> Any:
        raise UsageError(
            f"a {type(self).__name__} cannot be passed to a task, because tasks cannot submit "
            "tasks; submit them in the program, and pass the handle of one task to another"
        )

    def _open_session(self) -> Session:
        """Return the session that receives the submits. Raises UsageError."""
        return self._shared.session or self._shared.begin()

    @overload
    def submit(
        self,
        task: ChipCallable | CallableHandle,
        /,
        *args: object,
        **options: Unpack[SubmitOptions],
    ) -> TaskHandle: ...

    @overload
    def submit(
        self, task: TypedTask[[], Outcome], /, **options: Unpack[SubmitOptions]
    ) -> TaskHandle[Outcome]: ...

    @overload
    def submit(
        self, task: TypedTask[[A], Outcome], a: A | Tensor, /, **options: Unpack[SubmitOptions]
    ) -> TaskHandle[Outcome]: ...

    @overload
    def submit(
        self,
        task: TypedTask[[A, B], Outcome],
        a: A | Tensor,
        b: B | Tensor,
        /,
        **options: Unpack[SubmitOptions],
    ) -> TaskHandle[Outcome]: ...

    @overload
    def submit(
        self,
        task: TypedTask[[A, B, C], Outcome],
        a: A | Tensor,
        b: B | Tensor,
        c: C | Tensor,
        /,
        **options: Unpack[SubmitOptions],
    ) -> TaskHandle[Outcome]: ...

    @overload
    def submit(
        self,
        task: TypedTask[[A, B, C, D], Outcome],
        a: A | Tensor,
        b: B | Tensor,
        c: C | Tensor,
        d: D | Tensor,
        /,
        **options: Unpack[SubmitOptions],
    ) -> TaskHandle[Outcome]: ...

    @overload
    def submit(
        self,
        task: TypedTask[[A, B, C, D, E], Outcome],
        a: A | Tensor,
        b: B | Tensor,
        c: C | Tensor,
        d: D | Tensor,
        e: E | Tensor,
        /,
        **options: Unpack[SubmitOptions],
    ) -> TaskHandle[Outcome]: ...

    @overload
    def submit(
        self,
        task: TypedTask[[A, B, C, D, E, F], Outcome],
        a: A | Tensor,
        b: B | Tensor,
        c: C | Tensor,
        d: D | Tensor,
        e: E | Tensor,
        f: F | Tensor,
        /,
        **options: Unpack[SubmitOptions],
    ) -> TaskHandle[Outcome]: ...

    @overload
    def submit(
        self,
        task: TypedTask[Parameters, Outcome],
        /,
        *args: Parameters.args,
        **kwargs: Parameters.kwargs,
    ) -> TaskHandle[Outcome]: ...

    @overload
    def submit(
        self,
        task: TypedTask[..., Outcome],
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
    ) -> TaskHandle[Outcome]: ...

    # The options have precedence over parameters with their names, which no type can express.
    def submit(  # type: ignore[misc]
        self,
        task: Submittable | TypedTask[...],
        /,
        *args: object,
        worker: int | None = None,
        hint: bool = False,
        retries: int | Retries | None = None,
        timeout_s: float | None = None,
        after: Sequence[TaskHandle] = (),
        config: CallConfig | None = None,
        **keywords: object,
    ) -> TaskHandle:
        """Submit a task and return its handle.

        A Worker submits to a session that the first submit begins, and the end of the Worker ends.
        Other keyword arguments are those of the function of a @task. An argument may be the handle
        of a task: it is the result that this task will have.
        The task runs after the tasks whose outputs it reads, after the tasks that use memory that
        it overwrites, and after the tasks in ``after``. ``worker``: the child that runs it; with
        ``hint``, the child that is preferred if it has free space; by default, any idle child.
        ``retries``: how often the task may run again, or a :class:`pto_core.Retries`; this
        overrides ``@task``. ``timeout_s``: the time limit in the child. A graph function of a child
        Worker receives ``args.tensor(i)`` and ``args.scalar(i)``; it reads and writes each array.
        Raises UsageError.
        """
        session = self._open_session()
        orch = session._orchestrator or session.orchestrator
        if type(task) is not Task:
            task, args, keywords = unbound(task, args, keywords)
        handle, target, temporary = session._typed(task)
        if isinstance(target, Task) and target.shadowed:
            passed = (worker, hint, retries, timeout_s, after, config)
            _check_shadowed(target, dict(zip(_OPTIONS, passed, strict=True)))
        policy = _policy(target, retries)
        producers: list[TaskHandle] = []
        blob, outputs, views = session._given(target, args, policy, producers, keywords)
        options: dict[str, Any] = {}  # without those with their default, because parsing takes time
        if worker is not None or hint:
            options.update(worker=-1 if worker is None else worker, hint=hint)
        if policy.count:
            options["retries"] = policy.count
        if timeout_s is not None:
            options["timeout_s"] = timeout_s
        if after or producers:
            options["after"] = [*after, *filter(_is_pending, producers)] if producers else after
        try:
            if not isinstance(target, Task):
                submitted = orch.submit_next_level(handle, blob, config, **options)
            elif options:
                submitted = orch.submit_sub(handle, blob, **options)
            else:
                submitted = orch.submit_sub(handle, blob)
        except UsageError as error:
            raise of_argument(error, target, [args], keywords) from None
        if session._log is not None:
            _record(session, submitted, handle.name, [blob], (*after, *producers))
        views = views if temporary is None else [*views, temporary, task]
        return _kept(session, submitted, outputs, views)

    def options(self, **options: Unpack[SubmitOptions]) -> SubmitterWithOptions:
        """Return an object whose ``submit`` has these options.

        A type checker does not accept options together with keyword arguments of the function:
        ``worker.options(timeout_s=1).submit(count, text, least=2)`` states them separately.
        """
        return SubmitterWithOptions(self, options)


_INSTEAD = {
    **dict.fromkeys(("remote", "apply", "apply_async"), "submit(function, ...), with a @task"),
    **dict.fromkeys(("starmap", "imap", "imap_unordered", "map"), "worker.map(function, items)"),
    **dict.fromkeys(("get", "gather"), "handle.result() for each handle"),
    **dict.fromkeys(("put", "scatter", "array", "tensor"), "worker.array(values) for an array"),
    **dict.fromkeys(("zeros", "empty", "shared_array"), "worker.shared_array(shape, dtype)"),
    **dict.fromkeys(("shutdown", "terminate", "join"), "worker.close()"),
    "as_completed": "worker.as_completed(handles)",
    "wait": "concurrent.futures.wait(handles)",
}
explain_names(TaskSubmitter, _INSTEAD)


class Session(TaskSubmitter, RunScope):
    """Submits tasks while its block is open; created by :meth:`Worker.session`.

    The end of the block waits for its tasks and raises their first failure, unless the program has
    handled it: with ``handle.exception()``, or ``try: handle.result()``. If the block raises an
    exception, its tasks that have not begun do not run. ``async with`` waits without blocking the
    event loop. Several sessions with the same hazards can be open at once, and any thread may
    submit to each.
    """

    def __init__(
        self,
        node: WorkerNode,
        callables: Callables,
        config: CallConfig | None,
        hazards: str,
        progress: bool | Listener,
    ) -> None:
        super().__init__()
        self._node = node
        self._callables = callables
        self._config = config
        self._hazards = hazards
        self._progress = progress
        self._follower: Follower | None = None
        self._runs: Runs | None = None
        self._orchestrator: Orchestrator | None = None
        self._memory: ValueMemory | None = None
        self._is_capture = False
        self._is_replayed = False  # whether the capture is for replays
        self._log: SessionLog | None = None
        self._accesses: HostAccesses | None = None

    # ---- the block ----

    def __enter__(self) -> Session:
        if self._runs is not None:
            raise UsageError("the block of this session is open; create another session")
        runs = self._node.started_runs()
        try:
            self._orchestrator = runs.begin(self, _of_engine(self._hazards), self._config)
            self._runs = runs
            children = self._node.started_children()
            self._memory = children.memory.values
            self._log = _new_log(self._hazards, self._memory)
            if self._hazards == CHECK:
                arena, is_local = children.memory.arena.mapping, children.buffers is None
                self._accesses = HostAccesses(self, arena, is_protecting=is_local)
            if self._progress is not False:
                shown = self._progress
                listener = default_listener(self._node.path) if shown is True else shown
                follower = Follower(partial(runs.progress, self), listener)
                follower.start()
                self._follower = follower
        except BaseException as error:
            self.__exit__(type(error), error, error.__traceback__)
            raise
        return self

    def _leave(self, error: BaseException | None) -> None:
        """End the run. If this call is interrupted, ``__exit__`` ends the run directly."""
        runs, self._runs, self._orchestrator = self._runs, None, None
        accesses, self._accesses = self._accesses, None
        is_checked = False
        try:
            if runs is not None:
                runs.leave(self, error)
            is_checked = error is None and self._hazards == CHECK
        finally:
            follower, self._follower = self._follower, None
            if follower is not None and runs is not None:
                follower.stop(runs.progress(self, is_over=True))
            self._callables.release()
            wrong_access = None if accesses is None else accesses.close()
            if self._log is not None:
                is_checked = is_checked and wrong_access is None
                _check_log(self._log, self._node.path, is_checked=is_checked)
            if wrong_access is not None:
                raise wrong_access

    @contextmanager
    def submitting_to(self, orch: Orchestrator, is_replayed: bool) -> Iterator[Session]:
        """Submit to a run or a capture that the caller has begun, until the end of the block."""
        self._memory = memory = self._node.started_children().memory.values
        self._is_capture = self._node.started_runs().is_capturing
        self._is_replayed = is_replayed
        self._orchestrator = orch
        if memory is not None:
            memory.is_captured = self._is_capture
        if not self._is_capture:
            self._log = _new_log(self._hazards, memory)
        try:
            yield self
        finally:
            log, self._orchestrator, self._log = self._log, None, None
            if memory is not None:
                memory.is_captured = False
            if log is not None:
                _check_log(log, self._node.path, is_checked=False)

    async def __aenter__(self) -> Session:
        if self._node.runs is None:
            await in_thread(self._node.start, lambda: None)
        take = partial(
            self.take_turn,
            self._node.started_runs().driver,
            hazards_number(_of_engine(self._hazards)),
            threading.get_ident(),
        )
        if not take(waits=False):
            try:
                await in_thread(partial(take, waits=True), self.interrupt)
            except asyncio.CancelledError:
                self.__exit__(None, None, None)
                raise
        return self.__enter__()

    def _repr_html_(self) -> str:
        state = "not open" if self._orchestrator is None else "open"
        rows: list[tuple[str, object]] = [("state", state)]
        if self._runs is not None:
            now = self._runs.progress(self)
            counts = [(name, getattr(now, name)) for name in ("submitted", "finished", "failed")]
            rows += counts
        return html_table(f"Session of {self._node.path}", rows)

    # ---- inside the block ----

    def _open_session(self) -> Session:
        return self

    def submit_group(
        self,
        task: Submittable,
        members: Sequence[Sequence[object]],
        *,
        workers: Sequence[int] | None = None,
        hint: bool = False,
        retries: int | Retries | None = None,
        timeout_s: float | None = None,
        after: Sequence[TaskHandle] = (),
        config: CallConfig | None = None,
    ) -> TaskHandle:
        """Submit one task that runs on several children at once, with separate arguments for each.

        ``workers``: the child for each member, all different; with ``hint``, the preferred
        children.
        """
        orch = self.orchestrator
        advice = "pass a list with the arguments of each member"
        given = [listed("a member", one, advice) for one in listed("members", members, advice)]
        if not given:
            raise UsageError("a group without members; pass the arguments of at least one member")
        handle, target, temporary = self._typed(task)
        policy = _policy(target, retries)
        options: dict[str, Any] = {
            "workers": workers,
            "hint": hint,
            "retries": policy.count,
            "timeout_s": timeout_s,
            "after": after,
        }

        producers: list[TaskHandle] = []
        made = [self._given(target, one, policy, producers) for one in given]
        if producers:
            options["after"] = [*after, *filter(_is_pending, producers)]
        blobs = [blob or TaskArgs() for blob, _, _ in made]
        try:
            if isinstance(target, Task):
                submitted = orch.submit_sub_group(handle, blobs, **options)
            else:
                submitted = orch.submit_next_level_group(handle, blobs, config, **options)
        except UsageError as error:
            raise of_argument(error, target, given, {}) from None
        if self._log is not None:
            _record(self, submitted, handle.name, blobs, (*after, *producers))
        outputs = of_group([outputs for _, outputs, _ in made])
        views = [view for _, _, views in made for view in views]
        views = views if temporary is None else [*views, temporary, task]
        return _kept(self, submitted, outputs, views)

    def _given(
        self,
        target: Task[..., Any] | ChipTask | GraphTask,
        values: Sequence[object],
        retries: Retries,
        producers: list[TaskHandle],
        keywords: Mapping[str, object] | None = None,
    ) -> tuple[TaskArgs | None, tuple[Any, ...] | Returned, list[Any]]:
        """Return the arguments of a submit, what its handle needs, and what must be kept.

        Handles in ``values`` whose tasks have no result are added to ``producers``, for which the
        new task must wait.
        """
        if isinstance(target, Task):
            if self._memory is None:
                target.needed(None)  # raises
            if self._is_capture:
                retries = _in_replay(retries, target.name) if self._is_replayed else NO_RETRIES
            return target.arguments(values, self._memory, keywords, retries, producers)
        if keywords:
            raise UsageError(
                f"submit has no option {next(iter(keywords))!r}, and {target.name} takes arguments "
                f"by position only; the options are {', '.join(_OPTIONS)}",
                name=next(iter(keywords)),
            )
        return *target.arguments(values), []

    def wait(self, array: object, /, *more: object) -> None:
        """Wait until the tasks that use memory of the arrays have ended.

        Then the program may read and write the arrays. Raises the first failure of these tasks that
        is not handled, as ``handle.result()`` does. Raises UsageError for an object that is not an
        array, and in a capture.
        """
        orch = self.orchestrator
        if self._is_capture:
            raise UsageError(
                "wait was called during a capture, which runs no tasks; call Worker.run"
            )
        used = TaskArgs()
        for number, one in enumerate((array, *more)):
            try:
                add_array(used, one, TensorArgType.INOUT, f"argument {number} of wait")
            except UsageError:
                raise UsageError(
                    f"argument {number} of wait is {shown(one)}; pass arrays of the Worker, as in "
                    "s.wait(x, y); the result() of a handle waits for one task",
                    name="array",
                    value=one,
                ) from None
        tensors = [one for one in used.tensors if not one.child_memory]
        users = [user for one in tensors for user in orch.users(one.address, one.nbytes)]
        for user in users:
            user.wait()
        if self._accesses is not None:
            for one in tensors:
                self._accesses.array_unused(one.address, one.address + one.nbytes)
        for user in users:
            if user.task_slot not in user.driver.hooks.handled:
                with suppress(CancelledError):
                    user.result()

    def empty(
        self, shape: int | Sequence[int], dtype: DTypeLike | DataType = "float32"
    ) -> ContinuousTensor:
        """Return a tensor in the heap ring, for an intermediate result.

        It is freed when its scope has ended and no task needs it. ``tensor[:, 8:16]`` is a part of
        it, as an argument of a ``@task``; a contiguous part is a tensor.
        """
        if type(dtype) is int:
            DataType.of(dtype)  # raises; the engine would accept the number of a type
        made = self.orchestrator.alloc(shape, dtype)
        if self._log is not None:
            self._log.add_allocation(made.address, made.nbytes)
        return made

    def scope(self) -> AbstractContextManager[None]:
        """Open a scope. Its allocations are freed when it has ended and no task needs them."""
        scope = cast(AbstractContextManager[None], self.orchestrator.scope())
        return scope if self._log is None else self._log.scope(scope)

    @property
    def orchestrator(self) -> Orchestrator:
        """The object that graph functions receive; it accepts submits that have no typed form."""
        if self._orchestrator is None:
            raise UsageError(
                "a session submits tasks inside its block only: `with worker.session() as s:`"
            )
        return self._orchestrator

    def _typed(
        self, task: Submittable | TypedTask[...]
    ) -> tuple[CallableHandle, Task[..., Any] | ChipTask | GraphTask, Registration | None]:
        """Return the handle of a task, and the object that converts its arguments.

        The third object is the registration that the submitted task must keep, or None.
        """
        if isinstance(task, Task):
            return self._callables.submittable(task, is_captured=self._is_replayed)
        if isinstance(task, _CallOf):
            handle, target, temporary = self._typed(task.task)
            renamed = self._node.registry.renamed(handle, task.name)
            return renamed, target, temporary
        if not callable(task) and not isinstance(task, ChipCallable | CallableHandle):
            raise UsageError(
                f"the task is {shown(task)}; pass a function with @task and then its arguments, as "
                "in submit(function, x), not its name and not the result of a call",
                name="task",
                value=task,
            )
        found = self._callables.submittable(task, is_captured=self._is_replayed)
        handle, target, _ = found
        if isinstance(target, Task):
            return found
        if isinstance(target, ChipCallable):
            return handle, ChipTask(target), None
        if self._node.nested:
            return handle, GraphTask(name_of(target)), None
        is_decorated = hasattr(task, "__wrapped__")
        place = "above its other decorators" if is_decorated else "before its function"
        raise UsageError(
            f"{getattr(task, '__qualname__', None) or shown(task)} has no @task, so submit does "
            f"not know how it uses its arguments; put @task {place}, or pass task(function)",
            name="task",
            value=task,
        )


_END = "nothing: the end of the with block waits for the tasks"
explain_names(Session, dict.fromkeys(("shutdown", "terminate", "join"), _END))


def _kept(
    session: Session, submitted: TaskHandle, outputs: tuple[Any, ...] | Returned, views: list[Any]
) -> TaskHandle:
    """Keep what a task needs until it has ended, and return its handle.

    The captured graph keeps the blocks of values of its tasks.
    """
    submitted.outputs = outputs
    if session._is_capture:
        submitted.is_captured = True
    elif session._memory is not None and (views or type(outputs) is Returned):
        session._memory.keep(submitted, views)
    return submitted


def _record(
    session: Session,
    submitted: TaskHandle,
    name: str,
    members: Sequence[TaskArgs | None],
    after: Sequence[TaskHandle],
) -> None:
    """Record a submit. The program has waited for some of the tasks before it."""
    known = {one.task_slot for one in after}
    if session._accesses is not None:
        known |= session._accesses.add(submitted, name, members, known)
    if session._log is not None:
        session._log.add_task(submitted.task_slot, name, members, known)


class SubmitterWithOptions:
    """Submits tasks with the same options; created by ``options`` of a Session or a Worker."""

    def __init__(self, submitter: TaskSubmitter, options: SubmitOptions) -> None:
        self._submit = partial(submitter.submit, **options)

    def submit(
        self,
        task: TypedTask[Parameters, Outcome],
        /,
        *args: Parameters.args,
        **kwargs: Parameters.kwargs,
    ) -> TaskHandle[Outcome]:
        """Submit a task; see :meth:`TaskSubmitter.submit`."""
        handle: TaskHandle[Outcome] = self._submit(task, *args, **kwargs)
        return handle


class SharedSession:
    """A session that begins when a thread first needs it; any thread may call the methods.

    After its end, the next submit begins another one.
    """

    def __init__(self, node: WorkerNode, callables: Callables) -> None:
        self._new = partial(Session, node, callables, None, "full", False)
        self._lock = threading.RLock()
        self._process = os.getpid()
        self.session: Session | None = None  # while its block is open

    def begin(self) -> Session:
        """Return the open session; if there is none, begin one. Raises UsageError."""
        with self.held():
            if self.session is None:
                self.session = self._new().__enter__()
            return self.session

    def end(self, error: BaseException | None = None) -> None:
        """End the session as the end of its block does, or as ``error`` in its block does."""
        if self.session is None or self._process != os.getpid():  # a forked process has no session
            return
        with self.held():
            session, self.session = self.session, None
        if session is not None:
            session.__exit__(None if error is None else type(error), error, None)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the lock. A thread that owns a run must not wait for a thread that needs its end."""
        if not self._lock.acquire(timeout=_PATIENCE_S):
            raise UsageError(
                "another thread waits to begin the session of this Worker or executor, until the "
                "runs and sessions that are open have ended; end them before this call"
            )
        try:
            yield
        finally:
            self._lock.release()


class _CallOf(NamedTuple):
    """A task that calls a function of the program, and the name of this function."""

    task: Task[..., Any]
    name: str


def call_of(task: Task[..., Any], function: object) -> Any:
    """Return ``task``, which calls its argument ``function``, for submits with that name."""
    return _CallOf(task, name_of(function))


def _of_engine(hazards: str) -> str:
    """Return the hazards that the engine orders in a session."""
    return "raw" if hazards == CHECK else hazards


def _new_log(hazards: str, memory: ValueMemory | None) -> SessionLog | None:
    """Return a record of submits if the session is checked or a command shows its graph."""
    is_shown = observation.current is not None and observation.of_graphs() is not None
    if not is_shown and hazards != CHECK:
        return None
    values = range(0) if memory is None else memory.addresses
    log: SessionLog = insight.SessionLog(is_full=hazards == "full", values=values)
    return log


def _check_log(log: SessionLog, path: str, *, is_checked: bool) -> None:
    """Add the graph of a session to those that a command shows. Raises RaceError if checked."""
    graph = insight.TaskGraph(log.log())
    if (seen := observation.of_graphs()) is not None:
        seen.graphs.append((path, graph))
    if is_checked:
        graph.check().raise_for_races()


@as_task
def _each(function: Callable[[Any], Any], items: Mapping[int, Any]) -> list[Any]:
    return called(function, items)


def called(function: Callable[[Any], Mapped], items: Mapping[int, Any]) -> list[Mapped]:
    """Call a function with each item. If it raises, add the item and its number to the error."""
    results = []
    for number, item in items.items():
        try:
            results.append(function(item))
        except BaseException as error:
            error.add_note(f"items[{number}] of map is {shown(item)}")
            raise
    return results


_each.calls_argument = True


def mapped(
    session: Session,
    function: Callable[[Item], Mapped],
    items: Iterable[Item] | Iterable[TaskHandle[Item]],
    chunksize: object,
    count: int,
) -> list[Mapped]:
    """Call a function with each item in tasks of a session; see ``Worker.map``.

    ``count``: the number of tasks if ``chunksize`` is "auto".
    """
    if not callable(function):
        raise UsageError(f"function is {shown(function)}; pass a function", name="function")
    target = unbound(function)[0]
    is_single = isinstance(target, Task) and target.is_task_per_call
    if is_single and chunksize == "auto":
        chunksize = 1
    try:
        given = list(items)
    except TypeError:
        if isinstance(items, Iterable) and not isinstance(items, TaskHandle):
            raise  # from the iterator of the program
        raise invalid_value(
            "items", items, "pass a list or another iterable, and of a handle its result()"
        ) from None
    even = max(1, -(-len(given) // max(count, 1)))
    size = even if chunksize == "auto" else integer(chunksize, 1, 2**63 - 1)
    if size is None:
        raise UsageError(
            f"chunksize is {shown(chunksize)}; pass the number of items of a task, 1 or more, or "
            '"auto"',
            name="chunksize",
            value=chunksize,
        )
    if is_single and size > 1:
        raise UsageError(
            f"chunksize is {size}, and {name_of(function)} is a @task with retries, or with a "
            "parameter Out or InOut, so that each item needs a task; omit chunksize",
            name="chunksize",
            value=chunksize,
        )
    with session as s:
        if is_single:
            numbered, single = dict(enumerate(given)), cast("Task[..., Mapped]", function)
            singles = iter(called(lambda item: s.submit(single, item), numbered))
            return called(lambda item: next(singles).result(), numbered)
        each = call_of(_each, function)
        rest = enumerate(given)
        chunks = iter(lambda: dict(itertools.islice(rest, size)), {})
        handles = [s.submit(each, function, chunk) for chunk in chunks]
        return [value for handle in handles for value in handle.result()]


def _policy(target: Task[..., Any] | ChipTask | GraphTask, given: int | Retries | None) -> Retries:
    """Return how a task may run again; raise UsageError."""
    if isinstance(target, Task):
        return target.retry_policy if given is None else as_retries(given)
    if isinstance(given, Retries):
        raise UsageError(
            f"{target.name} is not a @task, and only a @task accepts a Retries; pass "
            f"retries={given.count}, which repeats it after any failure and without a wait",
            name="retries",
            value=given,
        )
    return NO_RETRIES if given is None else as_retries(given)


def _in_replay(retries: Retries, name: str) -> Retries:
    """Return the Retries of a replayed task: all replays would count in the same block."""
    if retries.count and (retries.on is not BaseException or retries.backoff_s):
        raise UsageError(
            f"{name} has a Retries with conditions, which a replay cannot follow; submit it with "
            f"retries={retries.count}, which repeats it after any failure and without a wait",
            name="retries",
            value=retries,
        )
    return NO_RETRIES


def _is_pending(handle: TaskHandle) -> bool:
    """Return whether a task that needs the task of a handle must wait, or cannot run."""
    return handle.is_captured or not handle.has_ended or handle.failure is not None


def _check_shadowed(target: Task[..., Any], passed: Mapping[str, object]) -> None:
    """Raise UsageError for an option that has the name of a parameter of the function."""
    by_position = {name for name, *_ in target.signature.parameters}
    for name in target.shadowed:
        if passed[name] not in (None, False, ()):
            advice = "pass the argument by position, or " if name in by_position else ""
            raise UsageError(
                f"{name} is an option of submit and a parameter of {target.name}; {advice}rename "
                "the parameter",
                name=name,
                value=passed[name],
            )
