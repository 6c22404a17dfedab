"""The Worker class: children in their own processes, and an engine that runs graphs of tasks."""

from __future__ import annotations

import asyncio
import concurrent.futures
import inspect
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt

from pto_core._worker import (
    CallableHandle,
    CapturedGraph,
    ContinuousTensor,
    TaskArgs,
    TaskArgsView,
)
from pto_core.config.options import CHECK, HAZARDS
from pto_core.errors import ConfigError, UsageError
from pto_core.errors.values import as_path, invalid_value, listed, shown, suggestion
from pto_core.interrupts import Interrupts
from pto_core.plugins import insight, observation
from pto_core.worker.callables import Callables
from pto_core.worker.event_loops import in_thread
from pto_core.worker.executor import WorkerExecutor
from pto_core.worker.futures import TaskHandle
from pto_core.worker.hosts import Hosts, RemoteWorkerSpec
from pto_core.worker.memory_calls import MemoryCalls
from pto_core.worker.parts import refuse_masked
from pto_core.worker.programs import (
    Arrays,
    Program,
    ProgramFunction,
    prepared,
    task_args,
)
from pto_core.worker.runs import GraphFunction, hazards_number
from pto_core.worker.session import Item, Mapped, Session, SharedSession, TaskSubmitter, mapped
from pto_core.worker.settings import OtherHost, worker_settings
from pto_core.worker.worker_node import WorkerNode, WorkerView

if TYPE_CHECKING:
    from pto_core.config import Config
    from pto_core.interfaces import Policy, Scheduler
    from pto_core.kernels import CallConfig, DataType
    from pto_core.progress import Listener
    from pto_insight.graphs import Findings, TaskGraph
    from pto_insight.traces.worker_trace import WorkerTrace

Value = TypeVar("Value")

_OTHER_NAMES = ("max_workers", "n_jobs", "n_workers", "num_cpus", "num_workers", "processes")
"""The names that other libraries have for ``num_sub_workers``."""


class Worker(WorkerView, MemoryCalls, TaskSubmitter):
    """A Worker of level 3 (host) or higher, with its children.

    ``device_ids``: one child for each of these chips, which runs ``ChipCallable``s on ``platform``
    with ``runtime``; level 3 only. ``num_sub_workers``: the number of children that run Python
    functions (SUB children). Above level 3, :meth:`add_worker` adds Workers as children. Child ids
    count from 0 in the order of ``device_ids`` or of ``add_worker``. SUB children have their own
    ids, which also count from 0.

    The defaults of settings come from the configuration (``pto config``): ``heap_ring_size`` bytes
    for each of four heap rings, ``transport``, ``on_worker_death`` (``"fail"``, ``"restart"``,
    ``"reroute"``), ``start_method`` (``"fork"``, ``"spawn"``), ``task_timeout_s``, and any other as
    a keyword.
    ``host``: the address of an agent whose host runs this Worker, with the key set in the folder
    ``keys``; ``ship``: modules and packages of the program that are sent to it. ``hosts``: instead
    of an address, hosts that a launcher places (:meth:`Hosts.on`). Such a Worker is a template:
    ``add_worker`` makes one child for each host, with successive ids, and returns the first id.
    ``policy`` picks a child for a task without a pin: it is a function
    (:data:`pto_core.interfaces.Policy`), an object with the method ``pick``
    (:class:`pto_core.interfaces.Scheduler`), or the name of a plugin.

    Use the Worker as a context manager, or call :meth:`close`. Any thread may call the methods.
    Runs and sessions with the same hazards are open at once. A capture, a replay, and a run with
    other hazards wait until none is open; they are refused if one is open on the same thread. They
    first end the session of :meth:`submit`, as :meth:`close` does. While one thread starts the
    Worker, other calls wait. Workers are independent of each other. Raises UsageError, ConfigError
    or PluginError.
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
        policy: Policy | Scheduler | str | None = None,
        config: Config | None = None,
        host: str | None = None,
        keys: str | os.PathLike[str] | None = None,
        ship: Iterable[str] = (),
        hosts: Hosts | None = None,
        **settings: Any,
    ) -> None:
        named = policy if isinstance(policy, str) else None
        given = {"heap_ring_size": heap_ring_size, "policy": named, **settings}
        try:
            checked = worker_settings(
                level,
                platform,
                runtime,
                device_ids,
                num_sub_workers,
                child_mode,
                config,
                given,
                _other_host(host, keys, ship, hosts, policy, config),
            )
        except ConfigError as error:
            if (misspelt := _misspelt(error, settings)) is not None:
                raise misspelt from None
            raise
        self._node = WorkerNode(checked, None if isinstance(policy, str) else policy)
        self._callables = Callables(self._node)
        self._shared = SharedSession(self._node, self._callables)

    # ---- before the start, or at any time ----

    def register(
        self, target: object, *, serialise: bool = False, workers: Iterable[int] | None = None
    ) -> CallableHandle:
        """Register a function, its import path ``"module:name"`` or a ChipCallable for children.

        Chips run ChipCallables. SUB children and child Workers run functions. A SUB child calls
        ``function(args)`` if the function accepts a positional argument or has no signature,
        otherwise ``function()``; ``args`` is empty for a submit without arguments. A child Worker
        runs it as a graph function.

        Children that are forked later inherit the function. Other children import it by its path.
        They receive its code if they cannot import it, if they import different code, and always
        with ``serialise``. A :class:`RemoteCallable` is not imported here; ``workers`` names the
        Workers on other hosts that import it.

        When this method returns, all children have the function; after an error, none has. Raises
        UsageError for a target that cannot run or be serialised, and ControlError if a child
        refuses.
        """
        return self._callables.register(target, serialise=serialise, workers=workers)

    def unregister(self, handle: CallableHandle) -> None:
        """Invalidate the handle. Children drop the callable when its last handle is invalid."""
        self._shared.end()
        self._callables.unregister(handle)

    def add_worker(self, worker: Worker) -> int:
        """Add ``worker``, which must not have been started, as a child; return its child id.

        The Worker is started in the process of the child. A Worker on another host, or one for
        several hosts, can also join while this Worker runs, inside a run too; then this call waits
        until all of its children are ready.
        Raises UsageError; CapacityError if all places are in use (setting ``spare_workers``); and
        ChildStartError if the child does not become ready.
        """
        if not isinstance(worker, Worker):
            raise UsageError(f"{shown(worker)} is not a Worker", name="worker", value=worker)
        return self._node.add(worker._node)

    def remove_worker(self, worker: int) -> None:
        """End the child with this id, a Worker on another host, while this Worker runs.

        Its buffers are lost. Its id and its place are free for another Worker, and the Worker
        itself can be added again. Raises UsageError during a run or a trace, and for another id.
        """
        self._shared.end()
        self._node.remove(worker)

    def add_remote_worker(self, spec: RemoteWorkerSpec) -> int:
        """Add a Worker of level 3 on another host as a child; return its child id.

        Published programs use this call. ``add_worker(Worker(level=3, host=...))`` does the same
        and accepts more: other settings, and callables for the chips and SUB children of that
        Worker. Raises UsageError.
        """
        if not isinstance(spec, RemoteWorkerSpec):
            raise UsageError(f"{shown(spec)} is not a RemoteWorkerSpec", name="spec", value=spec)
        return self.add_worker(
            Worker(
                3,
                spec.platform,
                spec.runtime,
                spec.device_ids,
                spec.num_sub_workers,
                host=spec.address,
                keys=spec.keys,
            )
        )

    def shared_array(
        self, shape: int | Sequence[int], dtype: npt.DTypeLike | DataType = "float32"
    ) -> npt.NDArray[Any]:
        """Return an array of zeros that all children at all levels see at the same address.

        The default data type is float32, not float64 as in NumPy, because kernels compute with it.
        The memory is freed when no view of it exists. Raises CapacityError if memory is exhausted.
        """
        try:
            return self._node.arena().array(shape, dtype)
        except UsageError as error:
            if error.name != "shape":
                raise
            text = f"{error}; to copy an array or a list of numbers, call worker.array(values)"
            raise UsageError(text, name="shape", value=shape) from None

    def array(self, values: npt.ArrayLike) -> npt.NDArray[Any]:
        """Return a copy of an array, or of a list of numbers, that is a :meth:`shared_array`.

        The copy has C order and the data type of ``values``, also bfloat16 and float8 of torch. The
        memory of one copy of 1 to 128 MiB is kept for the next one of the same size, until a copy
        of another size or :meth:`close`.
        """
        refuse_masked(values, "values")
        try:
            given = np.asarray(values)
        except TypeError:  # a data type that NumPy lacks
            if not hasattr(values, "__dlpack__"):
                raise
            given = ContinuousTensor.from_array(values).numpy()
        if given.dtype.kind in "OSU":
            raise UsageError(
                f"values is {shown(values)}, which is no array of numbers; pass such an object to "
                "submit directly; of a handle, pass its result()",
                name="values",
                value=values,
            )
        return self._node.arena().copied(given)

    # ---- running ----

    def init(self) -> Worker:
        """Start the children at all levels and wait for them; a second call does nothing.

        Other calls that need children wait for the end of the start. Raises ChildStartError if a
        child does not become ready; then no child is left, and the Worker can be started again.
        Raises WorkerClosedError if another thread calls :meth:`close`.
        """
        self._node.start()
        return self

    def run(
        self,
        graph: GraphFunction | Program,
        args: TaskArgs | TaskArgsView | Arrays | None = None,
        config: CallConfig | None = None,
        *,
        hazards: str | None = None,
    ) -> None:
        """Call a function and wait for the tasks that it submitted.

        ``graph``: a program, ``def program(s, x, out)``, which submits tasks through a session and
        receives the arrays of the tuple ``args``; or a graph function, ``def graph(orch, args,
        config)``, which receives a view of the TaskArgs ``args``. Without ``args``, a function that
        requires exactly one argument is a program.
        ``hazards``: ``"raw"`` or ``"full"``. ``"check"``: as ``"raw"``, but :meth:`check` calls the
        function before, and tasks that race raise a RaceError, so that no task runs. None:
        ``"full"`` for a program; for a graph function ``"check"`` if this is the setting
        ``hazards``, otherwise ``"raw"``. Raises the exception of the function, otherwise one error
        for the first task that failed: TaskFailedError or ChildDiedError. The Worker is usable
        afterwards.
        """
        # takes no lock; in a forked process the object refuses all calls
        runs = self._node.runs or self._node.started_runs()
        function, given, chosen = prepared(graph, args, hazards, self.session)
        if not (isinstance(chosen, str) and chosen == "full"):
            self._shared.end()
        if observation.current is not None and not isinstance(function, ProgramFunction):
            runs.observe(function, given, config, chosen)
        runs.run(function, given, config, chosen)

    def capture(
        self,
        graph: GraphFunction | Program,
        args: TaskArgs | Arrays | None = None,
        config: CallConfig | None = None,
        *,
        hazards: str | None = None,
    ) -> CapturedGraph:
        """Call a function as :meth:`run` does, and record its submits for :meth:`replay`.

        No task runs. A replay replaces each tensor that lies inside one of ``args`` by the same
        part of the new argument, and repeats the graph's allocations. All other values stay those
        of the capture, also the copies of arrays of this process. Raises UsageError if the function
        requests the result of a task, begins a run or a session, or calls malloc, and if ``args``
        contain memory of a chip.
        """
        function, given, chosen = prepared(graph, args, hazards, self.session)
        if isinstance(function, ProgramFunction):
            function.is_replayed = True
        self._shared.end()
        return self._node.started_runs().capture(function, given, config, chosen)

    def graph(
        self,
        graph: GraphFunction | Program,
        args: TaskArgs | Arrays | None = None,
        config: CallConfig | None = None,
        *,
        hazards: str | None = None,
    ) -> TaskGraph:
        """Call a function as :meth:`run` does, and return the graph of the tasks that it submits.

        No task runs. The graph has all edges of the function, and a group is one task. Raises the
        errors of :meth:`capture`.
        """
        function, given, chosen = prepared(graph, args, hazards, self.session)
        self._shared.end()
        return self._node.started_runs().graph(function, given, config, chosen)

    def check(
        self,
        graph: GraphFunction | Program,
        args: TaskArgs | Arrays | None = None,
        config: CallConfig | None = None,
        *,
        hazards: str | None = None,
    ) -> Findings:
        """Call a function as :meth:`run` does; return the tasks that race, among other findings.

        No task runs. Raises the errors of :meth:`capture`.
        """
        return self.graph(graph, args, config, hazards=hazards).check()

    def replay(self, graph: CapturedGraph, args: TaskArgs | Arrays | None = None) -> None:
        """Run a captured graph on other tensors of the same shapes.

        The replay runs the same tasks, but does not call the function. Raises the errors of
        :meth:`run`, and UsageError for arguments that differ in shape or type from those of the
        capture.
        """
        runs = self._node.runs or self._node.started_runs()
        given = task_args(args)
        self._shared.end()
        runs.replay(graph, given)

    def session(
        self,
        config: CallConfig | None = None,
        *,
        hazards: str = "full",
        progress: bool | Listener = False,
    ) -> Session:
        """Return a run whose tasks are submitted in a block: ``with worker.session() as s:``.

        ``hazards``: ``"full"`` orders all conflicts, ``"raw"`` only reads after writes.
        ``"check"``: as ``"raw"``, and the end of the block raises a RaceError if tasks race.
        ``async with`` waits without blocking the event loop. ``progress``: True shows a bar in a
        notebook or on a terminal, and lines elsewhere; a function is called with a Progress.
        """
        self._node.life.check_open()
        hazards_number(hazards, (*HAZARDS, CHECK))  # detect an invalid value before the block
        if not isinstance(progress, bool) and not callable(progress):
            raise invalid_value(
                "progress", progress, "pass True, or a function that receives a Progress"
            )
        if hazards != "full":
            self._shared.end()
        return Session(self._node, self._callables, config, hazards, progress)

    def map(
        self,
        function: Callable[[Item], Mapped],
        items: Iterable[Item] | Iterable[TaskHandle[Item]],
        *,
        chunksize: int | Literal["auto"] = "auto",
        progress: bool | Listener = False,
    ) -> list[Mapped]:
        """Call a function with each item in the SUB children; return the values in order.

        Function, items and values are pickled. An item may be the handle of a task. ``chunksize``:
        the number of items of one task; "auto" makes four tasks for each child. For a ``@task``
        with retries, each item is a task. ``progress``: as for :meth:`session`. If a call raises an
        exception, tasks that have not begun do not run, and the error of the first task that failed
        is raised. Raises UsageError, TaskFailedError.
        """
        return mapped(
            self.session(progress=progress),
            function,
            items,
            chunksize,
            4 * self._node.settings.sub_workers,
        )

    def as_completed(
        self, handles: Iterable[TaskHandle[Value]], timeout: float | None = None
    ) -> Iterator[TaskHandle[Value]]:
        """Return an iterator over handles in the order in which their tasks end.

        Those whose tasks have ended come first, in the order of ``handles``. Raises UsageError. The
        iterator raises TimeoutError if a task has not ended ``timeout`` seconds after this call.
        """
        advice = "pass a list of the handles that submit returns"
        given: Any = listed("handles", handles, advice)
        for one in given:
            if not isinstance(one, concurrent.futures.Future):
                raise UsageError(f"a handle is {shown(one)}; {advice}", name="handles", value=one)
        ended = [one for one in dict.fromkeys(given) if one.done()]
        later = concurrent.futures.as_completed(set(given).difference(ended), timeout)
        return itertools.chain(ended, later)

    def executor(self) -> WorkerExecutor:
        """Return an executor of ``concurrent.futures`` that uses the SUB children.

        Its first submit begins a session, which the end of ``with worker.executor() as e:`` ends.
        """
        self._node.life.check_open()
        return WorkerExecutor(SharedSession(self._node, self._callables))

    @contextmanager
    def trace(self, level: int = 1) -> Iterator[WorkerTrace]:
        """Trace the runs of a block: ``with worker.trace() as trace:``.

        After the block, ``trace`` contains the records of this Worker and of everything below it.
        ``level``: 1 tasks, 2 also the work of the scheduler, 3 also waits, 4 also every
        dependency. The block may contain several runs, sessions and replays. It may also begin or
        end inside of one: then it waits for the tasks that children have received, and times
        outside of the block are unknown. Ctrl-C during the end of the block ends this wait. If the
        Worker is closed in the block, the trace ends there. Raises UsageError.
        """
        tracing = self._node.tracing
        trace = insight.WorkerTrace.of(insight.of_child(self.path, (), {}, 0))
        tracing.begin(level)
        try:
            yield trace
        finally:
            with Interrupts() as interrupts:  # a signal must not discard the records
                trace.fill(tracing.end(lambda: interrupts.signal is not None))

    def statistics(self) -> dict[str, Any]:
        """Return the counters of the Worker, as plain data."""
        return self._node.started_children().statistics()

    # ---- the end ----

    def close(self) -> None:
        """End the children and invalidate all handles; a second call does nothing.

        Before, wait for the tasks of :meth:`submit`. Raises their first failure that is not
        handled, when the children have ended. A session or run that is open is ended.
        During :meth:`init`, this call cancels the start. If another thread starts or closes the
        Worker, this call waits until that thread has ended the children. A signal handler may call
        this method.
        """
        self.__exit__(None, None, None)

    def __enter__(self) -> Worker:
        self._node.life.check_open()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            self._shared.end(error)
        finally:
            self._node.close()

    async def __aenter__(self) -> Worker:
        """Start the Worker without blocking the event loop.

        If the coroutine is cancelled meanwhile, the Worker is closed.
        """
        loop = asyncio.get_running_loop()
        return await in_thread(self.init, lambda: loop.run_in_executor(None, self.close))

    async def __aexit__(self, *raised: Any) -> None:
        session = self._shared.session
        interrupt = (lambda: None) if session is None else session.interrupt
        await in_thread(partial(self.__exit__, *raised), interrupt)


def _misspelt(error: ConfigError, settings: Mapping[str, object]) -> ConfigError | None:
    """Return the error for an unknown setting that resembles a parameter, otherwise None."""
    parameters = inspect.signature(Worker.__init__).parameters
    is_unknown = error.name in settings and str(error).startswith("unknown setting")
    hint = suggestion(str(error.name), parameters) if is_unknown else ""
    if is_unknown and error.name in _OTHER_NAMES:
        hint = "; did you mean 'num_sub_workers'?"
    if not hint:
        return None
    text = f"Worker has no parameter or setting {error.name!r}{hint}"
    return ConfigError(text, name=error.name)


def _other_host(
    host: str | None,
    keys: str | os.PathLike[str] | None,
    ship: Iterable[str],
    hosts: Hosts | None,
    policy: object,
    config: object,
) -> OtherHost | None:
    """Return the host of a remote Worker; raise UsageError for arguments that cannot be sent."""
    modules = _module_names(ship)
    if hosts is not None:
        _check_hosts(hosts, host, keys)
    elif host is None:
        for name, given in (("keys", keys is not None), ("ship", bool(modules))):
            if given:
                raise UsageError(
                    f"{name} was passed without host; pass host='tcp://HOST:PORT', too", name=name
                )
        return None
    for name, value in (("policy", policy), ("config", config)):
        if value is not None and not isinstance(value, str):
            raise UsageError(
                f"{name} of a remote Worker cannot be sent to its host; pass settings by name",
                name=name,
                value=value,
            )
    folder = None if keys is None else os.path.abspath(as_path("keys", keys))
    return OtherHost(host, folder, modules, hosts)


def _check_hosts(hosts: object, host: object, keys: object) -> None:
    if not isinstance(hosts, Hosts):
        raise UsageError(
            f'hosts is {shown(hosts)}; pass Hosts.on("local", num=2), or Hosts.on("command", '
            'num=2) with host_list="host1,host2"',
            name="hosts",
            value=hosts,
        )
    for name, value in (("host", host), ("keys", keys)):
        if value is not None:
            raise UsageError(
                f"{name} was passed with hosts; the launcher determines addresses and keys, so "
                f"omit {name}",
                name=name,
                value=value,
            )


def _module_names(ship: Iterable[str]) -> tuple[str, ...]:
    advice = "pass a list of the names of modules, such as ['my_pkg']"
    names = listed("ship", ship, advice)
    if not all(isinstance(name, str) for name in names):
        raise invalid_value("ship", ship, advice)
    return names
