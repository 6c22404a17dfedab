"""A Worker: children in processes of their own, and an engine that runs graphs of tasks on them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

import numpy.typing as npt

import pto_core.hierarchy.task_handle  # noqa: F401 - gives handles of tasks their methods
from pto_core._hierarchy import CallableHandle, CallableSpace, CapturedGraph, TaskArgs, TaskArgsView
from pto_core.errors import UsageError, WorkerClosedError
from pto_core.hierarchy.child_memory import ChildMemory
from pto_core.hierarchy.crew import Crew
from pto_core.hierarchy.life_cycle import Exclusive, LifeCycle, State
from pto_core.hierarchy.memory import Budget, SharedArena
from pto_core.hierarchy.processes import refuse_inside
from pto_core.hierarchy.registry import Registration, Registry
from pto_core.hierarchy.runs import GraphFunction, Runs, hazards_number
from pto_core.hierarchy.settings import WorkerSettings, worker_settings
from pto_core.interrupts import Interrupts

if TYPE_CHECKING:
    from pto_core.config import Config
    from pto_core.hierarchy.progress import Listener
    from pto_core.hierarchy.session import Session
    from pto_core.interfaces import Policy
    from pto_core.kernels import CallConfig, DataType

_Found = TypeVar("_Found")
_ADDED_LATE = "add_worker after init(); add all children before the Worker starts"
_CANCELLED = (
    "close() was called during init(); the start was cancelled and no child is left; create "
    "another Worker"
)


class Worker:
    """One level of the hierarchy, 3 (host) and up, with its children.

    ``device_ids``: one child for each of these chips, which runs ``ChipCallable``s on ``platform``
    under ``runtime``; level 3 only. ``num_sub_workers``: children that run Python functions. Above
    level 3, :meth:`add_worker` adds whole Workers as children. Child ids count from 0 in the order
    of ``device_ids``, or of ``add_worker``; SUB children have ids of their own.

    Settings that are not given come from the configuration (``pto config``): ``heap_ring_size``
    bytes for each of four heap rings, ``transport``, ``engine`` (``"native"``, ``"reference"``,
    or the name of another plugin), ``on_worker_death`` (``"fail"``, ``"restart"``, ``"reroute"``),
    ``start_method`` (``"fork"``, ``"spawn"``), ``task_timeout_s``, and any other as a keyword.
    ``policy`` picks a child for a task without a pin: a function, see
    :data:`pto_core.interfaces.Policy`, or the name of a plugin.

    Use it as a context manager, or call :meth:`close`. Any thread may call: one run, session or
    capture at a time is open, a second one is refused; other calls wait for a start on another
    thread. Two Workers know nothing of each other. Raises UsageError, ConfigError or PluginError.
    """

    def __init__(
        self,
        level: int,
        platform: str | None = None,
        runtime: str | None = None,
        device_ids: Iterable[int] = (),
        num_sub_workers: int = 0,
        heap_ring_size: int | None = None,
        *,
        child_mode: object = "PROCESS",
        policy: Policy | str | None = None,
        config: Config | None = None,
        **settings: Any,
    ) -> None:
        named = policy if isinstance(policy, str) else None
        self._policy = None if isinstance(policy, str) else policy
        given = {"heap_ring_size": heap_ring_size, "policy": named, **settings}
        self._settings: WorkerSettings = worker_settings(
            level, platform, runtime, device_ids, num_sub_workers, child_mode, config, given
        )
        self._path = self._settings.label
        self._registry = Registry()
        self._workers: list[Worker] = []
        self._arena: SharedArena | None = None
        self._crew: Crew | None = None
        self._runs: Runs | None = None
        self._last_runs: Runs | None = None  # what handles of tasks still ask after the end
        self._life = LifeCycle()
        self._changes = Exclusive()  # of what children get

    @property
    def level(self) -> int:
        """The level that it was made with; nothing but names depends on it."""
        return self._settings.level

    @property
    def path(self) -> str:
        """How errors name it: ``"L4"``, or ``"L4/host0"`` in the process of that child."""
        return self._path

    # ---- before it starts, or whenever ----

    def register(self, target: object, *, serialise: bool = False) -> CallableHandle:
        """Make a function, its import path ``"module:name"`` or a ChipCallable known to children.

        Chips run ChipCallables; SUB children and child Workers run functions. A SUB child calls
        ``function(args)`` if the signature of the function accepts a positional argument, or if the
        function has no signature, and ``function()`` otherwise; ``args`` is empty for a submit
        without arguments. A child Worker runs it as a graph function.

        Before :meth:`init` forked children inherit everything. Afterwards, and for spawned
        children, a function travels by its import path. It travels by its code where children
        cannot import it, or import other code than that of ``target``, and always with
        ``serialise``. Either all children have it when this returns or none. Raises UsageError for
        what cannot be run or serialised, ControlError when a child refuses.
        """
        with self._changes.entered("register"):
            return self._register(target, serialise=serialise)

    def unregister(self, handle: CallableHandle) -> None:
        """Let the handle die; children forget the callable with its last handle."""
        with self._changes.entered("unregister"):
            self._life.settled("unregister")
            self._check_outside_run("unregister")
            gone = self._registry.remove(handle)
            try:
                self._check_outside_run("unregister")  # of another thread, begun meanwhile
            except UsageError:
                self._registry.add(gone)
                self._registry.publish(gone)
                raise
            crew = self._crew
            if crew is not None and not self._registry.has(gone.identity.digest):
                crew.forget(gone)

    def add_worker(self, worker: Worker) -> int:
        """Add a Worker that has not been started as a child, and give its child id.

        Its :meth:`init` runs in the child's process. Raises UsageError.
        """
        with self._changes.entered("add_worker"):
            self._check_child(worker, self._life.settled("add_worker"))
            if not worker._life.add_to(self._life):
                worker._life.check_open()
                raise UsageError("another thread started or added the Worker; create another one")
            self._workers.append(worker)
            if not self._life.is_new:
                self._workers.remove(worker)
                worker._life.remove_from_above()
                raise UsageError(_ADDED_LATE)
            return len(self._workers) - 1

    def shared_array(
        self, shape: int | Sequence[int], dtype: npt.DTypeLike | DataType = "float32"
    ) -> npt.NDArray[Any]:
        """Give an array of zeros that every child, of any depth, sees at the same address.

        It lives as long as a view of it does. Raises CapacityError where memory does not suffice.
        """
        return self._shared_arena().array(shape, dtype)

    # ---- running ----

    def init(self) -> Worker:
        """Start the children and wait until each is ready, recursively; twice is fine.

        Other calls that need the children wait for the end of the start. Raises ChildStartError
        when a child does not get ready: then none is left, and the Worker is as before.
        WorkerClosedError when :meth:`close` was called meanwhile: none is left.
        """
        while self._life.settled("init") is State.NEW:
            if self._life.is_child:
                raise UsageError(
                    "this Worker is the child of another one, which starts it in a process of its "
                    "own; call init() of that one"
                )
            refuse_inside()
            self._start()
        return self

    def run(
        self,
        graph: GraphFunction,
        args: TaskArgs | TaskArgsView | None = None,
        config: CallConfig | None = None,
        *,
        hazards: str = "raw",
    ) -> None:
        """Call ``graph(orch, args, config)`` and wait for all tasks that it submitted.

        ``args``: a TaskArgs, of which it gets a view; None is an empty one. ``hazards``: ``"raw"``
        or ``"full"``. Raises what the graph raised, else one error for the first task that failed:
        TaskFailedError or ChildDiedError. The Worker can be used again then.
        """
        self._runs_here().run(graph, args, config, hazards)

    def capture(
        self,
        graph: GraphFunction,
        args: TaskArgs | None = None,
        config: CallConfig | None = None,
        *,
        hazards: str = "raw",
    ) -> CapturedGraph:
        """Call ``graph(orch, args, config)`` and keep its submits for :meth:`replay`.

        Nothing runs. A tensor that lies in one of ``args`` lies in the same place of the new one at
        a replay; what the graph allocates is allocated anew; everything else, also what the
        function reads of arrays and scalars while it is called, stays as it is now. Raises
        UsageError where the function asks for the result of a task, begins a run or a session, or
        calls malloc, and where ``args`` have memory of a chip.
        """
        return self.started_runs().capture(graph, args, config, hazards)

    def replay(self, graph: CapturedGraph, args: TaskArgs | None = None) -> None:
        """Run a graph that :meth:`capture` gave, on other tensors of the same shapes.

        It is a run like any other, of the same tasks, without calling the function; raises what
        :meth:`run` raises, and UsageError for arguments that are not as those of the capture.
        """
        runs = self._runs_here()
        runs.replay(graph, args)

    def session(
        self,
        config: CallConfig | None = None,
        *,
        hazards: str = "full",
        progress: bool | Listener = False,
    ) -> Session:
        """Give a run whose body is the block of ``with worker.session() as s:``.

        ``async with`` waits without blocking the event loop. ``progress``: True shows a bar on a
        terminal and plain lines elsewhere; a function is called with a Progress.
        """
        from pto_core.hierarchy.session import Session

        self._life.check_open()
        hazards_number(hazards)  # refused here, not at the beginning of the block
        return Session(self, config, hazards, progress)

    def statistics(self) -> dict[str, Any]:
        """Count what the Worker has done and what it holds, as plain data."""
        return self._running().statistics()

    # ---- memory of a chip ----

    def malloc(self, nbytes: int, worker: int = 0) -> int:
        """Return the address of ``nbytes`` of new memory on the chip of child ``worker``.

        Two chips may return the same address. A task that names the memory, as a ContinuousTensor
        with ``child_memory``, runs on that chip. The memory is lost with the child. Raises
        UsageError where there is no such chip, ControlError where the chip refuses.
        """
        return self._child_memory("malloc").malloc(worker, nbytes)

    def free(self, address: int, worker: int = 0) -> None:
        """Free memory of a chip; raises UsageError while a task that names it has not ended."""
        self._child_memory("free").free(worker, address)

    def copy_to(self, address: int, source: Any, worker: int = 0) -> None:
        """Copy all of a contiguous array, or bytes, to memory of a chip, and wait for that."""
        self._child_memory("copy_to").copy_to(worker, address, source)

    def copy_from(self, target: Any, address: int, worker: int = 0) -> None:
        """Fill a contiguous, writable array from memory of a chip, and wait for that."""
        self._child_memory("copy_from").copy_from(worker, target, address)

    # ---- the end ----

    def close(self) -> None:
        """End the children and give everything back; twice is fine. Handles are dead then.

        During :meth:`init` it cancels the start. Where another thread starts or closes the Worker,
        it waits until that thread has ended the children. A handler of a signal may call it.
        """
        if self._life.state is State.CLOSED:
            return
        refuse_inside()
        with Interrupts():  # it has closed, or has not begun to
            is_ours = self._life.begin_close()
            if is_ours:
                self._end()
        if not is_ours:
            self._life.await_closed()

    def __enter__(self) -> Worker:
        self._life.check_open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Worker {self._path}, {self._life.state.value}>"

    # ---- inside ----

    def _register(self, target: object, *, serialise: bool) -> CallableHandle:
        while True:
            is_new = self._life.settled("register") is State.NEW
            inherits = is_new and self._settings.config["start_method"] == "fork"
            made = self._registry.make(target, serialise=serialise, inherits=inherits)
            self._check_space(made)
            if is_new:
                self._registry.add(made)
                if self._life.is_new:
                    break
                self._registry.discard(made)  # the start that began may have missed it
            else:
                self._deliver(made)
                break
        self._registry.publish(made)
        self._life.check_open()
        return made.handle

    def _deliver(self, made: Registration) -> None:
        is_known = self._registry.has(made.identity.digest)
        self._registry.add(made)
        try:
            if not is_known:
                self._running().deliver(made)
        except BaseException:
            self._registry.discard(made)
            raise

    def _start(self) -> None:
        """Start, unless another thread has begun to; after an error no child is left."""
        with Interrupts():  # it has started, or nothing has: never half of it
            if not self._life.begin_start():
                return
            try:
                self._start_children()
                if not self._life.end_start(State.RUNNING):
                    raise WorkerClosedError(_CANCELLED)
            except BaseException as error:
                if self._life.end_start(State.NEW):
                    raise
                self._end()
                if isinstance(error, Exception):
                    raise WorkerClosedError(_CANCELLED) from error
                raise

    def _start_children(self) -> None:
        for number, worker in enumerate(self._workers):
            if worker._life.state is not State.NEW:
                raise WorkerClosedError(
                    f"child Worker {number} was closed before init(); add Workers that are open"
                )
        crew = Crew(
            self._settings,
            self._path,
            self._registry,
            self._workers,
            self._shared_arena(),
            self._policy,
        )
        crew.start(lambda: self._life.state is not State.STARTING)
        runs = Runs(crew)
        crew.supervision.follow(runs)
        self._crew, self._runs, self._last_runs = crew, runs, runs

    def _end(self) -> None:
        """Close what there is; of the thread that has to."""
        crew, self._crew, self._runs = self._crew, None, None
        try:
            if crew is not None:
                crew.close()
        finally:
            self._registry.close()
            with self._life.lock:
                arena, self._arena = self._arena, None
            if arena is not None:
                arena.close()
            self._life.end_close()

    def start_as_child(self, path: str) -> None:
        """Start in the process of this child, which ``path`` names; called once, by it."""
        self._path = path
        self._arena = None
        self._life, self._changes = LifeCycle(), Exclusive()
        self._start()

    @property
    def spawns(self) -> bool:
        """Whether it, or a Worker at any depth below, starts children anew; for its parent."""
        is_own = self._settings.config["start_method"] == "spawn"
        return is_own or any(worker.spawns for worker in self._workers)

    def started_runs(self) -> Runs:
        """Start if need be, and give what begins and ends runs; for sessions."""
        self.init()
        return _unless_closed(self._runs)

    def _runs_here(self) -> Runs:
        """Give them quickly; in a fork of the program they refuse whatever is asked."""
        return self._runs or self.started_runs()

    def submittable(self, task: object) -> tuple[CallableHandle, Any]:
        """Give a handle and what it is a handle of; for sessions.

        What was never registered is, by what its type allows; raises UsageError.
        """
        if isinstance(task, CallableHandle):
            return task, self._registry.target_of(task)
        known = self._registry.handle_of(task)
        return known or self._registered_once(task), task

    def _registered_once(self, task: object) -> CallableHandle:
        with self._changes.entered("submit"):
            return self._registry.handle_of(task) or self._register(task, serialise=False)

    def _running(self) -> Crew:
        self.init()
        return _unless_closed(self._crew)

    def _shared_arena(self) -> SharedArena:
        with self._life.lock:  # two threads get the same one
            self._life.check_open()
            if self._life.is_child:
                raise UsageError(
                    "shared_array of a Worker that was added to another one, which would not see "
                    "the array; call shared_array of that one"
                )
            if self._arena is None:
                self._arena = SharedArena(Budget(self._settings.config["shared_memory_limit"]))
            return self._arena

    def _child_memory(self, what: str) -> ChildMemory:
        self._life.check_open()
        if not self._settings.device_ids:
            raise UsageError(f"{what} is for the memory of a chip, and this Worker has no chips")
        runs = self._runs
        if runs is not None and runs.is_capturing:
            raise UsageError(f"{what} in a graph that is captured; call it before or after")
        return ChildMemory(self._running())

    def _check_outside_run(self, what: str) -> None:
        runs = self._runs
        if runs is not None and runs.is_running:
            raise UsageError(f"{what} inside a run; call it when the run is over")

    def _check_space(self, made: Registration) -> None:
        if made.identity.space == CallableSpace.LOCAL_CHIP and not self._settings.device_ids:
            raise UsageError(
                f"{made.identity.name} is for chips, and this Worker has none: give device_ids to "
                "a Worker of level 3 and register it there",
                name="target",
                value=made.target,
            )

    def _check_child(self, worker: object, state: State) -> None:
        if not isinstance(worker, Worker):
            raise UsageError(f"{worker!r} is no Worker", name="worker", value=worker)
        if state is not State.NEW:
            raise UsageError(_ADDED_LATE)
        if worker._life.state in (State.CLOSING, State.CLOSED):
            raise WorkerClosedError("the Worker to be added is closed; create another one")
        if worker._life.state is not State.NEW:
            raise UsageError(
                "the Worker to be added has been started already; add it before its init(), "
                "it is started in the process of the child"
            )
        if worker._life.is_child:
            raise UsageError("the Worker to be added is a child already; make another one")
        if worker.level >= self.level:
            raise UsageError(
                f"a Worker of level {worker.level} under one of level {self.level}; "
                "a child is of a lower level",
                name="worker",
                value=worker.level,
            )
        if worker._arena is not None:
            raise UsageError(
                "the Worker to be added has handed out shared arrays, which its parent would not "
                "see; make them with the shared_array of the parent"
            )


def _unless_closed(found: _Found | None) -> _Found:
    """Return what a Worker that runs has; None where another thread has closed it meanwhile."""
    if found is None:
        raise WorkerClosedError("this Worker is closed; create another one")
    return found
