"""The children and the life cycle of a Worker, and its place in the tree of Workers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar

from pto_core import log, standard_streams
from pto_core._native import integer
from pto_core._worker import TaskArgsView
from pto_core.errors import UsageError, WorkerClosedError
from pto_core.errors.limits import system_error
from pto_core.errors.values import shown
from pto_core.interrupts import Interrupts
from pto_core.notebooks import html_table
from pto_core.plugins import observation
from pto_core.worker.child_group import ChildGroup
from pto_core.worker.child_specs import child_specs
from pto_core.worker.life_cycle import Exclusive, LifeCycle, WorkerState
from pto_core.worker.memory import Budget, SharedArena
from pto_core.worker.processes import refuse_inside
from pto_core.worker.registry import Registry
from pto_core.worker.runs import GraphFunction, Runs
from pto_core.worker.settings import WorkerSettings

if TYPE_CHECKING:
    from pto_core.interfaces import Policy, Scheduler
    from pto_core.kernels import CallConfig
    from pto_core.worker.tracing import WorkerTracing

_Found = TypeVar("_Found")
_STARTED_MEANWHILE = "another thread started this Worker during add_worker; call add_worker again"
_CANCELLED = (
    "close() was called during init(); the start was cancelled and no child is left; create "
    "another Worker"
)


class WorkerNode:
    """The children and the life cycle of one Worker.

    It implements :class:`pto_core.worker.children.NestedWorker` for a parent Worker. ``changes``
    is a lock: one thread at a time changes the callables and children. ``children`` and ``runs``
    are set while the Worker runs.
    """

    def __init__(
        self,
        settings: WorkerSettings,
        policy: Policy | Scheduler | None,
    ) -> None:
        self.settings = settings
        self.path = settings.label
        self.registry = Registry()
        self.life = LifeCycle()
        self.changes = Exclusive()
        self.children: ChildGroup | None = None
        self.runs: Runs | None = None
        self.policy = policy
        self._nested: dict[int, WorkerNode] = {}  # by child id
        self._arena: SharedArena | None = None

    @property
    def level(self) -> int:
        """The level of the Worker."""
        return self.settings.level

    @property
    def nested(self) -> Sequence[WorkerNode]:
        """The Workers that were added to this Worker."""
        return list(self._nested.values())

    @property
    def remote_ids(self) -> list[int]:
        """The child ids of the Workers on other hosts."""
        return [
            child for child, node in self._nested.items() if node.settings.other_host is not None
        ]

    def remote_child(self, worker: object) -> int:
        """Return the id of a Worker on another host; raise UsageError for any other value."""
        child = integer(worker, 0, 2**31 - 1)
        if child is None or child not in self.remote_ids:
            raise UsageError(
                f"worker {shown(worker)} is not a Worker on another host; pass one of "
                f"{self.remote_ids}",
                name="worker",
                value=worker,
            )
        return child

    @property
    def spawns(self) -> bool:
        """Whether the Worker, or a Worker at any depth below it, spawns its children."""
        if self.settings.other_host is not None:
            return False  # its children are on another host
        specs = child_specs(self.settings, self.settings.label, self.nested)
        is_own = any(spec.is_spawned for spec in specs)
        return is_own or any(node.spawns for node in self.nested)

    def add(self, node: WorkerNode) -> int:
        """Add a Worker as a child and return its child id; raise UsageError.

        A Worker for several hosts gets successive ids, of which the first is returned. If this
        Worker runs, wait until all its children are ready. After an error it is no child.
        """
        refuse_inside()
        with self.changes.entered("add_worker"):
            is_running = self.life.settled("add_worker") is WorkerState.RUNNING
            self._check_addable(node)
            if not is_running:
                return self._add_before_start(node)
            children = _unless_closed(self.children)
            if node.settings.other_host is None:
                raise UsageError(
                    "a Worker without host= or hosts= was added after init(); add it before the "
                    "Worker starts, because only Workers on other hosts can join a running Worker",
                    name="worker",
                )
            places = children.free_places(node.settings.count)
            self._add_below(node)
            children.take(places, node)
        try:
            children.join(places)
        except BaseException:
            node.life.remove_from_above()
            raise
        self._nested.update(dict.fromkeys(places, node))
        return places.start

    def remove(self, worker: int) -> None:
        """End a child on another host, which can be added again; raise UsageError."""
        with self.changes.entered("remove_worker"):
            if self.life.settled("remove_worker") is WorkerState.NEW:
                raise UsageError(
                    "remove_worker was called before init(); create a Worker without that child"
                )
            self.check_outside_run("remove_worker")
            child = self.remote_child(worker)
            children = _unless_closed(self.children)
            if children.tracing.is_on:
                raise UsageError("remove_worker was called during a trace; call it after the trace")
            children.leave(child)
            self.registry.drop_worker(child)
            node = self._nested.pop(child)
            if node not in self._nested.values():  # a template can have other children
                node.life.remove_from_above()

    def start(self) -> None:
        """Start the children, or wait until another thread has; see ``Worker.init``."""
        while self.life.settled("init") is WorkerState.NEW:
            if self.life.is_child:
                raise UsageError(
                    "this Worker is the child of another Worker, which starts it in a separate "
                    "process; call init() on the parent Worker"
                )
            if self.settings.other_host is not None:
                raise UsageError(
                    f"this Worker is for {self.settings.other_host}, as a child of a Worker here; "
                    "add it with add_worker to a Worker of a higher level",
                    name="host",
                )
            refuse_inside()
            self._start()

    def start_as_child(self, path: str) -> None:
        """Start the Worker's children, in its process; ``path`` is its name in messages."""
        self.path = path
        self._arena = None
        self.life, self.changes = LifeCycle(), Exclusive()
        self._start()

    def started_runs(self) -> Runs:
        """Start the children if necessary, and return the ``Runs`` object."""
        self.start()
        return _unless_closed(self.runs)

    def started_children(self) -> ChildGroup:
        """Start the children if necessary, and return their child group."""
        self.start()
        return _unless_closed(self.children)

    def run_graph(
        self, graph: GraphFunction, args: TaskArgsView | None, config: CallConfig | None
    ) -> None:
        """Run a graph function and wait for its tasks."""
        self.started_runs().run(graph, args, config, "raw")

    @property
    def tracing(self) -> WorkerTracing:
        """The trace of the Worker; the first access starts the children."""
        return self.started_children().tracing

    def check_outside_run(self, call: str) -> None:
        """Raise UsageError while a run is open."""
        runs = self.runs
        if runs is not None and runs.is_running:
            raise UsageError(f"{call} was called during a run; call it after the run has ended")

    def arena(self) -> SharedArena:
        """Return the arena; the first call creates it."""
        with self.life.lock:  # so that two threads get the same arena
            self.life.check_open()
            if self.life.is_child:
                raise UsageError(
                    "shared_array was called on a child of another Worker, which would not see the "
                    "array; call shared_array of the parent Worker"
                )
            if self._arena is None:
                standard_streams.complete()
                self._arena = SharedArena(Budget(self.settings.config["shared_memory_limit"]))
            return self._arena

    def close(self) -> None:
        """End the children, or wait until another thread has; see ``Worker.close``."""
        if self.life.state is WorkerState.CLOSED:
            return
        refuse_inside()
        with Interrupts():  # a signal must not stop a close that has begun
            is_ours = self.life.begin_close()
            if is_ours:
                self._end()
        if not is_ours:
            self.life.await_closed()

    def _start(self) -> None:
        """Start the children, unless another thread does. After an error, none of them runs."""
        standard_streams.complete()  # the program may have closed them
        with Interrupts():  # a signal must not leave a start incomplete
            if not self.life.begin_start():
                return
            try:
                self._start_children()
                if not self.life.end_start(WorkerState.RUNNING):
                    raise WorkerClosedError(_CANCELLED)
                self._observe_start()
            except BaseException as error:
                if self.life.end_start(WorkerState.NEW):
                    raise
                self._end()
                if isinstance(error, Exception):
                    raise WorkerClosedError(_CANCELLED) from error
                raise

    def _start_children(self) -> None:
        for number, node in self._nested.items():
            if node.life.state is not WorkerState.NEW:
                raise WorkerClosedError(
                    f"child Worker {number} was closed before init(); add Workers that are open"
                )
        log.configure(self.settings.config)
        try:
            children = ChildGroup(
                self.settings, self.path, self.registry, self.nested, self.arena(), self.policy
            )
            children.start(lambda: self.life.state is not WorkerState.STARTING)
        except OSError as error:
            text = f"{self.path} cannot start its children: {error.strerror or error}"
            raise system_error(text, error.errno) from error
        self.children, self.runs = children, Runs(children)

    def _observe_start(self) -> None:
        children = self.children
        if children is not None:
            if (seen := observation.of_traces()) is not None:
                children.tracing.begin(seen.trace_level)
                seen.tracings.append(children.tracing)
            paths = tuple(child.path for child in children.children if not child.is_empty)
            children.observers.notify("pto_worker_started", worker=children.info, children=paths)

    def _end(self) -> None:
        """Release everything; called on the thread that changed the state to CLOSING."""
        children, self.children, self.runs = self.children, None, None
        try:
            if children is not None:
                children.close()
        finally:
            self.registry.close()
            with self.life.lock:
                arena, self._arena = self._arena, None
            if arena is not None:
                arena.close()
            self.life.end_close()
        if children is not None:
            children.observers.notify("pto_worker_closed", worker=children.info)

    def _add_before_start(self, node: WorkerNode) -> int:
        self._add_below(node)
        child = len(self._nested)
        ids = range(child, child + node.settings.count)
        self._nested.update(dict.fromkeys(ids, node))
        if self.life.is_new:
            return child
        for one in ids:
            del self._nested[one]
        node.life.remove_from_above()
        raise UsageError(_STARTED_MEANWHILE)

    def _add_below(self, node: WorkerNode) -> None:
        if not node.life.add_to(self.life):
            node.life.check_open()
            raise UsageError(
                "another thread started or added this Worker meanwhile; create another Worker"
            )

    def _check_addable(self, node: WorkerNode) -> None:
        if node.life.state in (WorkerState.CLOSING, WorkerState.CLOSED):
            raise WorkerClosedError("the Worker to be added is closed; create another one")
        if node.life.state is not WorkerState.NEW:
            raise UsageError(
                "the Worker to be added has been started; add it without init(): "
                "it is started in the process of the child"
            )
        if node.life.is_child:
            raise UsageError("the Worker to be added is a child already; create another one")
        if node.level >= self.level:
            raise UsageError(
                f"a Worker of level {node.level} cannot be a child of a Worker of level "
                f"{self.level}; a child must have a lower level",
                name="worker",
                value=node.level,
            )
        if node._arena is not None:
            raise UsageError(
                "the Worker to be added has made shared arrays, which its parent would not see; "
                "make them with the shared_array of the parent"
            )


class WorkerView:
    """A part of :class:`pto_core.Worker`: its name, level and state."""

    _node: WorkerNode

    @property
    def level(self) -> int:
        """The level of the Worker. It only determines the names in paths."""
        return self._node.level

    @property
    def path(self) -> str:
        """The name in errors: ``"L4"``, or ``"L4/host0"`` in the process of that child."""
        return self._node.path

    def __repr__(self) -> str:
        return f"<Worker {self._node.path}, {self._node.life.state.value}>"

    def _repr_html_(self) -> str:
        children = self._node.children
        rows: list[tuple[str, object]] = [("state", self._node.life.state.value)]
        if children is not None:
            rows += [(child.path, child.state.value) for child in children.children]
            rows.append(("bytes of values", f"{children.statistics()['value_bytes']:,}"))
        if (arena := self._node._arena) is not None:
            arrays = arena.statistics()
            rows.append(("shared arrays", f"{arrays.arrays:,} with {arrays.nbytes:,} bytes"))
        return html_table(f"Worker {self._node.path}", rows)


def _unless_closed(found: _Found | None) -> _Found:
    """Return ``found``; raise WorkerClosedError if it is None: another thread closed the Worker."""
    if found is None:
        raise WorkerClosedError("this Worker is closed; create another one")
    return found
