"""The children of a started Worker, from start to end, and the resources that they share.

A Worker has a fixed number of places. A place holds one :class:`Child`, which has one state::

    start of the Worker                      a Worker joins
            |                                       |
            v        exit                           v      start of a process
          ALIVE -----------------------------------> LOST ----------------> STARTING
          ^   |     exit                            ^  ^                     |   |
          |   +-----------> FENCED -----------------+  +---------------------+   |
          |      with a fence        it is over             exit                 |
          +----------------------------------------------------------------------+  ready

    Every state can change to ENDED: the child has left, or no process will be started.

- Only the thread that owns the fork lock changes a state. After an exit of an ALIVE child the
  driver is informed once, at the change from ALIVE or FENCED; and once more if no process will be
  started.
- A restarted child is still the same child. A Worker that joins is another child, with a new
  object. Until it is ready the first time, the driver does not expect it and is not informed of a
  loss.
- A new process starts unless restarts are disabled, the start fails, or the child exits repeatedly.
- A child whose host a launcher places gets another host after each loss, and after a start that
  failed. If restarts are disabled, its start is deferred until the next run begins.

The native driver calls :class:`DriverHooks`, which advance the states without waiting.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError
from contextlib import ExitStack
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any

from pto_core import _worker, log
from pto_core._worker import CallableSpace, Driver, NearInputs
from pto_core.config import Config
from pto_core.errors import (
    AbortedError,
    CapacityError,
    ChildStartError,
    PtoError,
    UsageError,
    WorkerClosedError,
)
from pto_core.interfaces import Policy, Scheduler
from pto_core.interfaces.observer import WorkerInfo
from pto_core.interrupts import Interrupts
from pto_core.plugins import load_observers
from pto_core.worker.child_specs import ChildSpec, Kind, child_specs, empty_place, spec_of_worker
from pto_core.worker.children import (
    ChildContext,
    ChipBody,
    NestedWorker,
    SubBody,
    WorkerBody,
    refuse_fork_with_vendor_libraries,
)
from pto_core.worker.control import Control
from pto_core.worker.endpoints import ChildConnection, Opener
from pto_core.worker.event_loops import EventLoops, Notifier
from pto_core.worker.failures import CANCELLED, Failure
from pto_core.worker.live_state import note_interrupt, state_text
from pto_core.worker.memory import SharedArena
from pto_core.worker.memory.worker_memory import WorkerMemory
from pto_core.worker.placement import placement_of
from pto_core.worker.processes import (
    ChildExit,
    ChildPlan,
    ChildProcesses,
    ChildStart,
    attached_by_spawned,
    fork_lock,
    refuse_inside,
    register_parkable,
)
from pto_core.worker.registry import Registration, Registry
from pto_core.worker.settings import WorkerSettings, level_name
from pto_core.worker.tracing import WorkerTracing, flight_file
from pto_core.worker.values import CHECKED

if TYPE_CHECKING:
    from pto_transport_zmq.remote.worker_buffers import BufferTable

_FRAME_BYTES = 128
_INLINE_PARTS = 4  # larger requests than child_queue_bytes divided by this are stored in memory
_GRACE_S = 2.0
_CUT_SHORT_S = 0.2
_KILL_S = 5.0
_NAP_S = 0.002  # seconds between two checks whether a restart has ended
_PLACING_STEP_S = 0.02
_PAUSE_NS = 50_000_000  # the interval in which the driver calls poll while it has work
_QUICK_EXITS_MAX = 5
_NONE = -1
_CLOSED = Failure.of(AbortedError("the Worker was closed inside the run"))
_CLOSED_MEANWHILE = "this Worker was closed while a Worker joined it; create another one"
_NO_CHILD = Failure.of(
    CapacityError("no child can run the task; add Workers on other hosts with add_worker")
)


class ChildState(Enum):
    """The state of a child."""

    ALIVE = "alive"
    FENCED = "fenced"  # its process has exited; the driver is informed when the fence is over
    LOST = "lost"  # a new process will be started
    STARTING = "starting"
    ENDED = "ended"  # no process will be started; also the state of a place without a child


_PENDING = (ChildState.FENCED, ChildState.LOST, ChildState.STARTING)


class Child(ChildSpec):
    """One child of ``group``, or a place without one. ``number``: its place.

    ``group`` is a weak proxy. ``connection``: set from :meth:`connect` until the driver has it.
    """

    def __init__(self, group: ChildGroup, number: int, spec: ChildSpec, state: ChildState) -> None:
        super().__init__(**vars(spec))
        self.group = group
        self.number = number
        self.state = state
        self.connection: ChildConnection | None = None
        self.is_expected = state is ChildState.ALIVE  # whether the driver has, or expects, it
        self.is_deferred = False  # whether its start waits for the begin of a run
        self.failure: BaseException | None = None  # why it did not join
        self._is_joining = False  # until the first process of a child that joins is ready
        # In the state FENCED: the error, and whether a new process will start.
        self._loss: tuple[BaseException, bool] | None = None
        self._known: set[bytes] = set()  # digests of the callables that a new process received
        self._host: str | None = None  # the address of the host that a launcher has placed
        self.quick_exits = 0  # number of exits since a task last ended in the child
        self._completed = 0  # number of tasks that had ended at the last exit

    @property
    def is_restarting(self) -> bool:
        """Whether it is FENCED, LOST or STARTING, and its start is not deferred."""
        return self.state in _PENDING and not self.is_deferred

    def observe(self, hook: str, **arguments: Any) -> None:
        """Notify observers of an event of the child."""
        group = self.group
        group.observers.notify(hook, worker=group.info, child=self.path, **arguments)

    # ---- a start ----

    def connect(self) -> None:
        """Create the connection before a start."""
        group, memory = self.group, self.group.memory
        self.connection = group.opener.connect(
            self.path,
            memory=(memory.connection(self.number)[0], group.opener.memory_bytes),
            parent_bell=_worker.progress_table_parent_bell(memory.progress_table),
            child_bell=_worker.progress_table_child_bell(memory.progress_table, self.number),
        )

    def disconnect(self) -> None:
        """Release a connection that the driver does not have."""
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.discard()

    def plan(self) -> ChildPlan:
        """Return the plan for a start; a spawned child receives callables in it."""
        group = self.group
        passes_on = self.worker is not None and self.worker.spawns
        return ChildPlan(
            self.path,
            self._body(),
            group.memory.mappings,
            passes_on,
            self.start_method,
            group.bells,
        )

    def _body(self) -> Callable[[ChildStart], None]:
        group, memory, config = self.group, self.group.memory, self.group.settings.config
        assert self.connection is not None
        context = partial(ChildContext, self.number, memory.progress_table, self.connection)
        if self.remote is not None:
            assert group.buffers is not None
            relays = [child.number for child in group.children if child.transport is not None]
            address, _ = memory.connection(self.number)
            return self.remote.body(
                context(),
                group.registry.of_child(self.number, self.space),
                attached_by_spawned(memory.mappings),
                group.buffers.place,
                address + group.opener.memory_bytes,
                (memory.digests, relays.index(self.number), len(relays)),
                config["child_queue_bytes"],
                config["child_window"],
            )
        if self.is_spawned:
            inside = context(deliveries=group.registry.deliveries(self.space))
        else:
            inside = context(group.registry.inherited(self.space))
        if self.device is not None:
            if not self.is_spawned:
                refuse_fork_with_vendor_libraries(config)
            return ChipBody(inside, self.device, config)
        if self.worker is not None:
            return WorkerBody(inside, self.worker)
        assert memory.values is not None
        first = next(child.number for child in group.children if child.kind is Kind.SUB)
        part = memory.values.part(self.number - first)
        return SubBody(inside, config, part, is_forked=not self.is_spawned)

    def attach(self) -> None:
        """Open the parent's end of the connection for the driver, because the child is ready."""
        assert self.connection is not None
        if self.remote is not None:
            self.group.processes[self.number].exit_error = self.remote.exit_error
        opened = self.connection.open_parent()
        self.group.driver.attach(
            self.number, opened.table, opened.end, opened.largest_frame_bytes, opened.is_python
        )
        self.connection = None

    def _begin_start(self) -> None:
        """Start a new process without waiting for it. Raises PtoError."""
        group = self.group
        group.memory.reset_connection(self.number)
        try:
            self.connect()
            # Read the digests before the plan, so that no callable is missed: a callable that is
            # registered in between is delivered twice.
            registered = group.registry.of_child(self.number, self.space)
            self._known = {one.identity.digest for one in registered}
            group.processes.replace(self.number, self.plan())
        except BaseException:
            self.disconnect()
            raise
        self._set(ChildState.STARTING)

    def _finish_start(self) -> None:
        """Connect a new process that is ready; deliver callables that were registered meanwhile."""
        group, number = self.group, self.number
        self.attach()
        # Registrations from now on reach the child, because it is attached. Send those made before.
        for late in group.registry.of_child(number, self.space):
            if late.identity.digest not in self._known:
                deliveries = late.deliveries()
                group.control.send(number, "callable", late.identity.digest, deliveries)
        group.tracing.child_restarted(number)
        group.driver.child_ready(number)
        self.is_expected = True
        self._set(ChildState.ALIVE)
        group.restarts += not self._is_joining
        self.observe("pto_child_started" if self._is_joining else "pto_child_restarted")
        self._is_joining = False

    # ---- a loss, and what follows ----

    def lose(self, ended: ChildExit) -> None:
        """Report an exit to the driver, or begin the fence; begin a restart if it is enabled."""
        group, process = self.group, self.group.processes[self.number]
        if self.state is not ChildState.ALIVE or process.pid != ended.pid:
            return  # the process was starting; the check of its start detects its exit
        can_restart = group.restarts_lost or self.placements is not None
        restarts = can_restart and self._count_exit()
        group.deaths += 1
        group.tracing.child_lost(self.number)
        self._loss = process.exit_error(ended), restarts
        if self.fence is None:
            self._report_loss(*self._loss)
        else:
            self._set(ChildState.FENCED)
            self.fence.begin(ended)

    def advance(self) -> None:
        """Do the next steps of a fence or a restart that need no waiting."""
        try:
            self._advance()
        except BaseException as error:
            if not self._tries_again(error):
                self._give_up(error)
            if not isinstance(error, Exception):
                raise

    def _advance(self) -> None:
        if self.fence is not None and self._loss is not None:
            if not self.fence.is_over():
                return
            self._report_loss(*self._loss)
            if self.state is not ChildState.LOST:
                return
        if self.state is ChildState.STARTING:
            start = self.group.processes.check_start(self.number)
            if start.is_ready:
                self._finish_start()
            if start.failure is None:
                return
            self._set(ChildState.LOST)
            log.get(__name__).warning("child lost during its start", reason=str(start.failure))
            if not self._count_exit():
                raise start.failure
            self.release_host()
        if self.is_placed() and not self.is_deferred:
            self._begin_start()

    def _report_loss(self, error: BaseException, restarts: bool) -> None:
        self._set(ChildState.LOST if restarts else ChildState.ENDED)
        self.is_expected = restarts and self.group.restarts_lost
        self.is_deferred = restarts and not self.is_expected
        error = self._explained(error)
        self.observe("pto_child_lost", error=error, restarts=restarts)
        self.release_host()
        try:
            self.report(Failure.of(error))
        finally:
            # includes tasks that were lost with the child
            self._completed = self._total_completed()

    def _tries_again(self, error: BaseException) -> bool:
        """Return whether a child that could not start on its host gets another host."""
        is_of_host = self.placements is not None and isinstance(error, ChildStartError)
        if not is_of_host or self._is_joining or not self._count_exit():
            return False
        log.get(__name__).warning("child not restarted on this host", reason=str(error))
        self.group.processes.kill(self.number)
        self.release_host()
        self._set(ChildState.LOST)
        return True

    def _give_up(self, error: BaseException) -> None:
        self.group.processes.kill(self.number)
        self.release_host()
        if self._is_joining:
            self.failure = error
        self._set(ChildState.ENDED)
        if self._is_joining:
            return
        self.observe("pto_child_lost", error=error, restarts=False)
        if self.is_expected:
            self.is_expected = False
            self.report(Failure.of(error))
        else:  # no task waits for the child, so none will raise the error
            log.get(__name__).warning("child not restarted", reason=str(error))

    def report(self, failure: Failure) -> None:
        """Inform the driver of a loss. If ``is_expected``, tasks wait for the next process."""
        driver = self.group.driver
        driver.child_lost(self.number, driver.add_cause(failure.pack()), self.is_expected)

    def join(self) -> None:
        """Begin the start of a child at a place that was empty."""
        self._completed = self._total_completed()
        self._is_joining = True
        self._set(ChildState.LOST)

    def end(self) -> None:
        """Start no more processes."""
        self._set(ChildState.ENDED)

    def _set(self, state: ChildState) -> None:
        self.state = state
        if state in _PENDING:
            self.group.pending[self.number] = self
        else:
            self.group.pending.pop(self.number, None)
        if state is not ChildState.FENCED:
            self._loss = None
        if state is not ChildState.STARTING:
            self.disconnect()

    def _total_completed(self) -> int:
        """Return the number of tasks that have ended at this place."""
        table = self.group.memory.progress_table
        return int(_worker.progress_table_record(table, self.number)["completed"])

    def _count_exit(self) -> bool:
        """Return False if the child has exited too often without ending a task, otherwise True."""
        if self._total_completed() > self._completed:
            self.quick_exits = 0
        self.quick_exits += 1
        return self.quick_exits <= _QUICK_EXITS_MAX

    # ---- the host, if a launcher places it ----

    def is_placed(self) -> bool:
        """Return whether the child has a host; otherwise one is being placed.

        Does not wait. Raises ChildStartError if no host can be placed.
        """
        if self.remote is None:
            return True
        if not self.remote.is_placed():
            return False
        if self.placements is not None and self._host is None:
            self._host = self.remote.address
            self.observe("pto_host_placed", host=self._host)
        return True

    def release_host(self, *, is_lost: bool = True) -> None:
        """End the agent of the host, because the child was lost or has left."""
        host, self._host = self._host, None
        if host is not None and is_lost:
            self.observe("pto_host_lost", host=host)
        if self.remote is not None:
            self.remote.release()

    def _explained(self, error: BaseException) -> BaseException:
        """Return the error of a loss, with the launcher's reason if its agent has ended."""
        reason = None if self.remote is None else self.remote.agent_loss()
        if reason is None or not isinstance(error, PtoError):
            return error
        fields = {name: getattr(error, name) for name in error.fields}
        return type(error)(f"{error.message}; {reason}", **fields)


class ChildGroup:
    """The children of a Worker, from its start to :meth:`close`, and their shared resources.

    Only the process ``process`` may use it; the copy in a forked process is unusable. ``children``:
    by number; a Worker that joins or leaves replaces its element. ``pending``: the children that
    are FENCED, LOST or STARTING, by number.
    """

    def __init__(
        self,
        settings: WorkerSettings,
        path: str,
        registry: Registry,
        workers: Sequence[NestedWorker],
        arena: SharedArena,
        policy: Policy | Scheduler | None,
    ) -> None:
        config = settings.config
        self.process = os.getpid()
        self.is_closing = False
        self.is_stopped = False  # whether exits are no longer handled, because it is closing
        self.settings = settings
        self.path = path
        self.arena = arena
        self.registry = registry
        self.observers = load_observers().log_problems()
        self.info = WorkerInfo(path, settings.level, self.process)
        self.restarts_lost = config["on_worker_death"] != "reroute"
        self.deaths = self.restarts = 0
        queue_bytes = config["child_queue_bytes"]
        self.opener = Opener(settings.transport, queue_bytes // _FRAME_BYTES, queue_bytes)
        specs = child_specs(settings, path, workers)
        relays = {child: one for child, spec in enumerate(specs) if (one := spec.transport)}
        self.memory = _worker_memory(specs, self.opener, settings, arena, path)
        table = self.memory.progress_table
        # Descriptors that ring the doorbells of relays, which also wait for sockets.
        self.bells = tuple(
            _worker.open_bell_descriptor(_worker.progress_table_child_bell(table, child))
            for child in relays
        )
        self.processes = ChildProcesses(timeout_s=config["child_start_timeout_s"])
        self.pending: dict[int, Child] = {}
        self.children = [self._new_child(child, spec) for child, spec in enumerate(specs)]
        _worker.progress_table_path(table, _NONE, path)
        self.hooks = DriverHooks(self)
        self.placement, inputs = placement_of(settings, policy, has_relays=bool(relays))
        is_for_chips = not workers and not relays
        space = CallableSpace.LOCAL_CHIP if is_for_chips else CallableSpace.LOCAL_PYTHON
        self.driver = self._new_driver(space, inputs)
        self.control = Control(
            self.driver, self.children, self.memory.values, queue_bytes // _INLINE_PARTS
        )
        self.tracing = WorkerTracing(
            self.driver, self.control, self.children, self.memory.release_traces, path, config
        )
        self.buffers: BufferTable | None = None
        if relays:
            module = next(iter(relays.values())).buffers()
            self.buffers = module.BufferTable(self.driver, arena, config["remote_buffer_bytes"])
        # These functions break reference cycles: the driver and its open run refer to each other,
        # and a policy may refer to handles of tasks. close() calls them too.
        self._finalizers = [weakref.finalize(self, partial(close_driver, self.driver))]
        if self.placement is not None:
            self._finalizers.append(weakref.finalize(self, self.placement.forget))

    def _new_driver(self, next_level: CallableSpace, inputs: NearInputs | None) -> Driver:
        config, memory = self.settings.config, self.memory
        return Driver(
            children=[
                (int(child.kind), config["child_window"], child.receives_use, child.is_spawned)
                for child in self.children
            ],
            rings=memory.rings,
            progress=memory.progress_table,
            trace=(memory.traces, trace_ring_records(config)),
            hooks=self.hooks,
            callables=self.registry.live,
            next_level_space=next_level,
            repeats_lost=config["on_worker_death"] != "fail",
            snapshot_limit=config["snapshot_limit"],
            task_timeout_ms=self.settings.task_timeout_ms,
            policy=self.placement or inputs,
            inputs=inputs,
            attached=attached_by_spawned(memory.mappings),
        )

    def _new_child(self, number: int, spec: ChildSpec, state: ChildState | None = None) -> Child:
        if state is None:
            state = ChildState.ENDED if spec.is_empty else ChildState.ALIVE
        path = "" if spec.is_empty else spec.path  # for `pto top`
        _worker.progress_table_path(self.memory.progress_table, number, path)
        return Child(weakref.proxy(self), number, spec, state)

    def start(self, is_cancelled: Callable[[], bool]) -> None:
        """Start all children. If one fails to start, end the others.

        Raises ChildStartError, and AbortedError soon after ``is_cancelled()`` is true.
        """
        with ExitStack() as undoing:
            undoing.callback(self.close)
            self._await_hosts(is_cancelled)
            started = [child for child in self.children if not child.is_empty]
            for child in self.children:
                if child.is_empty:
                    self._set_empty(child)
                else:
                    child.connect()
                    undoing.callback(child.disconnect)
            plans = {child.number: child.plan() for child in started}
            register_parkable(self.driver)
            try:
                self.processes.start(plans, is_cancelled)
            except ChildStartError:
                for child in started:
                    child.is_placed()  # raises the reason if its agent has ended
                raise
            for child in started:
                child.attach()
                self.driver.child_ready(child.number)
                child.observe("pto_child_started")
            undoing.pop_all()

    def _await_hosts(self, is_cancelled: Callable[[], bool]) -> None:
        """Wait until launchers have placed all hosts.

        Raises ChildStartError. Raises AbortedError after a signal, and shortly after
        ``is_cancelled()`` becomes true.
        """
        missing = [child for child in self.children if child.placements is not None]
        with Interrupts() as interrupts:
            while missing := [child for child in missing if not child.is_placed()]:
                if interrupts.signal is not None or is_cancelled():
                    raise AbortedError("the start was cancelled while hosts were placed")
                time.sleep(_PLACING_STEP_S)

    def _set_empty(self, place: Child, failure: Failure = _NO_CHILD) -> None:
        """Inform the driver that a place has no child, so that no task waits for a child there.

        ``failure``: the reason for tasks that the last child of the place has not ended.
        """
        self.driver.set_present(place.number, False)
        place.report(failure)

    # ---- Workers on other hosts that join and leave ----

    def free_places(self, count: int) -> range:
        """Return the first successive empty places; raise CapacityError if there are too few."""
        for first in range(len(self.children) - count + 1):
            if all(child.is_empty for child in self.children[first : first + count]):
                return range(first, first + count)
        places = sum(child.transport is not None for child in self.children)
        lacking = "none is free" if count == 1 else f"no {count} successive ones are free"
        raise CapacityError(
            f"this Worker has {places} places for Workers on other hosts, and {lacking}; create "
            "it with a larger spare_workers"
            + (", or remove one of these Workers with remove_worker" if places else ""),
            name="spare_workers",
            value=places + count,
            limit=places,
        )

    def take(self, places: range, worker: NestedWorker) -> None:
        """Assign empty places to a Worker, which gets callables and tasks after :meth:`join`."""
        last = None
        for place in places:
            path = f"{self.path}/{level_name(worker.level)}{place}"
            last = spec_of_worker(worker, path, "spawn", last)
            self._place(self._new_child(place, last, ChildState.ENDED))

    def _place(self, child: Child) -> None:
        self.children[child.number] = child
        self.hooks.paths[child.number] = child.path

    def join(self, places: range) -> None:
        """Start the children at these places and wait until all are ready.

        After an error the places are empty: a child that is ready already is ended. Raises the
        errors of the start of a child.
        """
        children = [self.children[place] for place in places]
        try:
            with fork_lock():
                if self.is_closing:
                    raise WorkerClosedError(_CLOSED_MEANWHILE)
                for child in children:
                    child.join()
            for child in children:
                self.hooks.await_restart(child.number)
                if child.failure is not None or self.is_closing:
                    raise child.failure or WorkerClosedError(_CLOSED_MEANWHILE)
        except BaseException as error:
            for child in children:
                with fork_lock():
                    child.end()
                    self.processes.kill(child.number)
                self._empty(child, Failure.of(error))
            raise
        for place in places:
            self.driver.set_present(place, True)

    def leave(self, number: int) -> None:
        """End the Worker of a place outside of a run. Its buffers are lost."""
        child = self.children[number]
        self.driver.set_present(number, False)
        with fork_lock():
            if child.is_restarting:
                self.processes.kill(number)
            child.end()
        self.control.close_all([number])
        self.processes.end_one(number, _GRACE_S)
        self._empty(child, _NO_CHILD)

    def _empty(self, child: Child, failure: Failure) -> None:
        """Remove a child that has ended, and its launcher if no other child uses that."""
        place = empty_place(self.settings, self.path, child.number)
        empty = self._new_child(child.number, place)
        with fork_lock():
            child.release_host(is_lost=False)
            self._place(empty)
            is_used = any(one.placements is child.placements for one in self.children)
        if child.placements is not None and not is_used:
            child.placements.close()
        if child.is_expected and not self.is_closing:
            self._set_empty(empty, failure)

    # ---- callables and requests ----

    def deliver(self, registration: Registration) -> None:
        """Deliver a callable to all children that can run it, or to none; raise ControlError."""
        children = self._targets(registration)
        for child in children:
            remote = self.children[child].remote
            if remote is not None and (used := remote.used_by(registration)):
                self.control.require(child, "modules", used)
        self.control.deliver(registration, children)

    def forget(self, registration: Registration, *, waits: bool = True) -> None:
        """Remove a callable from the children that have it; ``waits``: wait until they have."""
        digest, children = registration.identity.digest, self._targets(registration)
        if waits:
            self.control.ask_all(children, "forget", digest)
            return
        for child in children:
            self.control.send(child, "forget", digest)

    def _targets(self, registration: Registration) -> list[int]:
        return [
            child.number
            for child in self.children
            if not child.is_empty and registration.is_for(child.number, child.space)
        ]

    def ask(self, child: int, operation: str, *arguments: Any) -> Any:
        """Return the reply of a child to a request, sent after its restart; raise ControlError."""
        self.hooks.await_restart(child)
        return self.control.ask(child, operation, *arguments)

    def statistics(self) -> dict[str, Any]:
        """Return the counters of the driver, of restarts, and of hosts, as plain data."""
        remotes = [child.remote for child in self.children if child.remote is not None]
        values = self.memory.values
        return {
            **self.driver.statistics(),
            "value_bytes": 0 if values is None else values.nbytes,
            "deaths": self.deaths,
            "restarts": self.restarts,
            "fenced": sum(child.state is ChildState.FENCED for child in self.children),
            "placing": sum(remote.is_placing for remote in remotes),
        }

    # ---- the end ----

    def close(self) -> None:
        """End every child, and an open run. Tasks that have not begun do not run.

        A second call, or a call in a forked process, does nothing.
        """
        if self.process != os.getpid():
            return
        self.is_closing = True
        cause = self.driver.add_cause(_CLOSED.pack())
        # run all steps, even after an error in one of them
        with Interrupts() as interrupts, ExitStack() as steps:
            steps.callback(self._close_bells)
            steps.callback(self.memory.close)
            if self.buffers is not None:
                steps.callback(self.buffers.close)
            steps.callback(self._close_launchers)
            steps.callback(self.processes.kill_all)
            for finalizer in self._finalizers:
                steps.callback(finalizer)
            steps.callback(self.hooks.notifier.join, _GRACE_S)
            steps.callback(self.driver.stop, cause)
            # This ends an open run; its results are discarded.
            is_running = self.driver.is_running
            grace_s = _CUT_SHORT_S if is_running else _GRACE_S
            steps.callback(self.processes.end, grace_s, forgets=False)
            self.tracing.close(lambda: is_running or interrupts.signal is not None)
            with fork_lock():  # another thread may be restarting a child
                self.is_stopped = True
                for child in list(self.pending.values()):
                    child.end()
            self.driver.cancel(cause)
            self.control.close_all([process.index for process in self.processes])

    def _close_launchers(self) -> None:
        for child in self.children:
            if child.placements is not None:
                child.placements.close()

    def _close_bells(self) -> None:
        for descriptor in self.bells:
            os.close(descriptor)
        self.bells = ()


class DriverHooks:
    """The functions that the native driver calls: for exits, broken connections, and memory.

    The driver calls them with the GIL, on the thread that waits for a task or on its own thread. It
    owns this object, which outlives the Worker if a handle of a task is kept. So this object refers
    to the group weakly, and to no child. ``paths``: the paths of the children. ``event_loops``: the
    event loops that await tasks. ``notifier``: calls the callbacks of tasks. ``handled``: the tasks
    whose errors the program took. ``cancelled``: the causes of cancelled tasks.
    """

    def __init__(self, group: ChildGroup) -> None:
        self.paths = [child.path for child in group.children]
        self.event_loops = EventLoops()
        self.notifier = Notifier(self.event_loops)
        self.handled: set[int] = set()
        self.cancelled: set[int] = set()
        self._group: Callable[[], ChildGroup | None] = weakref.ref(group)
        self._mappings = group.memory.own_mappings  # keeps the memory of the driver mapped
        self._begun_ns = 0

    # ---- called by the driver ----

    def poll(self) -> None:
        """Handle exits of children and finished restarts.

        Return at once if another thread has the fork lock: it may be waiting until the driver's
        thread is parked, and this may be the driver's thread. Raises WorkerClosedError if the
        Worker was deleted, because the wait would never end.
        """
        group, lock = self._group(), fork_lock()
        if group is None:
            raise WorkerClosedError(
                "the Worker of this task was closed or deleted; keep a reference to it, and close "
                "it after the wait"
            )
        group.driver.note_state()
        if (values := group.memory.values) is not None:
            values.settle(CHECKED)
        is_failed = group.placement is not None and group.placement.is_cancel_due
        if not (is_failed or group.pending or group.processes.have_exited()):
            return
        try:
            refuse_inside()
        except UsageError:
            return  # this thread is inside the policy of another Worker and cannot fork
        with Interrupts():  # an exit must be handled completely; otherwise tasks wait forever
            if not lock.acquire(blocking=False):
                return
            try:
                if not group.is_stopped:
                    self._handle(group)
            finally:
                lock.release()

    def note_state(self) -> None:
        """Write what the Worker is doing to the progress table, because it is idle now."""
        group = self._group()
        if group is not None:
            group.driver.note_state()

    def note_interrupt(self, error: BaseException) -> None:
        """Add what the Worker is doing to the exception of a signal that ends a wait."""
        group = self._group()
        if group is not None:
            note_interrupt(error, group.driver, group.memory.descriptor)

    def end_child(self, child: int, cause: int) -> None:
        """Kill a child because a task exceeded its time limit, or because it must exit at once."""
        group = self._group()
        if group is None:
            return
        driver = group.driver
        known = driver.cause(cause)
        if known is None or known["data"] or known["task"] == _NONE:
            self._kill(group, child, ChildExit.died_error)
            return
        task = driver.task(known["task"])
        if task is None or not _may_run_in(child, task):
            return  # the child has exited, and may have been replaced already
        process = group.processes[child]
        if process.exit is not None:  # it exited before the time limit; its fence is not over
            driver.explain(cause, Failure.of(process.exit_error(process.exit)).pack())
            return

        state = state_text(group.driver, group.memory.descriptor)

        def hung_error(ended: ChildExit) -> PtoError:
            error = ended.hung_error(task["timeout_s"])
            error.add_note(f"state at the time limit:\n{state}")
            driver.explain(cause, Failure.of(error).pack())
            return error

        self._kill(group, child, hung_error)

    def child_broken(self, child: int, message: str) -> None:
        """Kill a child whose connection broke."""
        group = self._group()
        if group is not None:
            self._kill(group, child, lambda ended: ended.broken_error(message))

    def grant(self, ring: int, nbytes: int) -> int:
        """Permit a heap ring to use its first ``nbytes`` bytes. Raises CapacityError."""
        group = self._group()
        assert group is not None
        return group.memory.grant(ring, nbytes)

    def turn_is_late(self, owner: int) -> None:
        """Log that a thread has waited long for the run of the thread ``owner``."""
        names = [thread.name for thread in threading.enumerate() if thread.ident == owner]
        log.get(__name__).warning(
            "run waits for the runs of other threads",
            thread=threading.current_thread().name,
            owner=names[0] if names else "ended",
            advice="a graph function or the block of a session must not wait for another run",
        )

    # ---- called by a handle ----

    def check_restarts(self) -> None:
        """Raise UsageError unless a child that was killed is started again."""
        group = self._group()
        if group is not None and group.settings.config["on_worker_death"] != "restart":
            raise UsageError(
                "cancel(force=True) ends the child that runs the task, and this Worker does not "
                'start it again; create the Worker with on_worker_death="restart"',
                name="force",
                value=True,
            )

    def kill_task(self, number: int, cause: int) -> bool:
        """Cancel a task; if it has begun, kill its child. Return whether it was cancelled.

        The child is not killed if the task has ended meanwhile.
        """
        group = self._group()
        task = None if group is None else group.driver.task(number)
        if group is None or task is None:
            return False
        if task["child"] == _NONE:
            return group.driver.cancel_task(number, cause)
        child = group.children[task["child"]]
        if task["members"] > 1 or child.remote is not None:
            what = "a group" if task["members"] > 1 else "a task on another host"
            raise UsageError(
                f"cancel(force=True) cannot end {what} that has begun; cancel it before it begins",
                name="force",
                value=True,
            )
        process = group.processes[child.number]
        try:
            process.suspend()  # so that its next task does not begin before the kill
            if group.driver.cancel_task(number, cause):  # also receives what has ended
                process.resume()
                return True
            task = group.driver.task(number)
            if task is not None and _may_run_in(child.number, task):
                child.quick_exits -= 1  # the program requests this exit
                self._kill(group, child.number, lambda ended: CancelledError(CANCELLED))
            else:
                process.resume()
        except BaseException:
            process.resume()
            raise
        return False

    # ---- called by the Worker ----

    def begin_run(self, *, is_alone: bool) -> None:
        """Detect children that have exited since the last run.

        Otherwise a task of the new run could be sent to an exited child and fail. The check takes a
        considerable part of a short run, so it is omitted if the last run began less than 50 ms
        ago. If no other run is open, forget the handled errors.
        """
        now = time.monotonic_ns()
        if now - self._begun_ns >= _PAUSE_NS:
            self.poll()
        self._begun_ns = now
        if is_alone:
            self.handled.clear()
            self.cancelled.clear()
        group = self._group()
        if group is not None and group.pending:
            for child in list(group.pending.values()):  # another thread may change the dict
                child.is_deferred = False

    def await_restart(self, child: int) -> None:
        """Wait until the restart of a child has ended, if one is in progress."""
        self.poll()
        while (group := self._group()) is not None and group.children[child].is_restarting:
            del group
            time.sleep(_NAP_S)
            self.poll()

    def _handle(self, group: ChildGroup) -> None:
        if group.placement is not None and group.placement.is_cancel_due:
            group.placement.is_cancel_due = False
            error = AbortedError("the placement policy failed; the open runs were cancelled")
            group.driver.cancel(group.driver.add_cause(Failure.of(error).pack()))
        # an error for one child must not prevent the handling of the others
        with ExitStack() as steps:
            for ended in reversed(group.processes.poll()):
                steps.callback(group.children[ended.index].lose, ended)
        for child in list(group.pending.values()):
            child.advance()

    def _kill(
        self, group: ChildGroup, child: int, exit_error: Callable[[ChildExit], Exception]
    ) -> None:
        process = group.processes[child]
        if process.is_alive:
            process.exit_error = exit_error
            process.kill()
            process.await_exit(_KILL_S)
        self.poll()


def _may_run_in(child: int, task: dict[str, Any]) -> bool:
    """Return whether the task has not ended and may be running in the child."""
    is_sent = task["members"] > 1 or task["child"] == child
    return bool(task["result"] == _NONE and is_sent)


def _worker_memory(
    specs: Sequence[ChildSpec],
    opener: Opener,
    settings: WorkerSettings,
    arena: SharedArena,
    path: str,
) -> WorkerMemory:
    """Reserve the memory that a Worker shares with its children."""
    config, relays = settings.config, [spec.transport for spec in specs]
    memory = WorkerMemory(
        progress_table_bytes=_worker.progress_table_bytes(len(specs)),
        connection_bytes=[opener.memory_bytes + (one.reason_bytes if one else 0) for one in relays],
        digest_bytes=max((one.digest_bytes for one in relays if one is not None), default=0),
        trace_bytes=_worker.trace_bytes(len(specs), trace_ring_records(config)),
        trace_file=flight_file(config, path),
        heap_ring_size=config["heap_ring_size"],
        arena=arena,
        sub_children=settings.sub_workers,
        is_forking=config["start_method"] == "fork",
    )
    cpus = len(os.sched_getaffinity(0))
    _worker.create_progress_table(memory.progress_table, len(specs), cpus)
    return memory


def trace_ring_records(config: Config) -> int:
    """Return the number of records in each trace ring: a power of two."""
    records: int = config["trace_ring_records"]
    return 1 << (records - 1).bit_length()


def close_driver(driver: Driver) -> None:
    """Close a driver. If this thread is inside one of its calls, another thread closes it."""
    try:
        driver.close()
    except UsageError:
        threading.Thread(target=driver.close).start()
