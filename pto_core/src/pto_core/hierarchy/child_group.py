"""The children of a started Worker, with their driver and memory."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

from pto_core import _hierarchy
from pto_core._hierarchy import CallableSpace, Driver, NearInputs
from pto_core.config import Config
from pto_core.errors import AbortedError, CapacityError, ChildStartError, UsageError
from pto_core.hierarchy.child_hosts import ChildHosts
from pto_core.hierarchy.child_specs import ChildSpec, child_specs
from pto_core.hierarchy.children import (
    ChildContext,
    ChipBody,
    NestedWorker,
    SubBody,
    WorkerBody,
)
from pto_core.hierarchy.control import Control
from pto_core.hierarchy.driver_hooks import DriverHooks
from pto_core.hierarchy.endpoints import ChildConnection, Opener
from pto_core.hierarchy.failures import Failure
from pto_core.hierarchy.fork_check import refuse_fork_with_vendor_libraries
from pto_core.hierarchy.memory import SharedArena, WorkerMemory
from pto_core.hierarchy.placement import Placement, least_loaded, policy_of
from pto_core.hierarchy.processes import (
    ChildPlan,
    ChildProcesses,
    attached_by_spawned,
    fork_lock,
    register_parkable,
)
from pto_core.hierarchy.registry import Registration, Registry
from pto_core.hierarchy.remote_buffers import BufferTable
from pto_core.hierarchy.remote_transport import RemoteChild
from pto_core.hierarchy.restarts import Replacement, Restarts
from pto_core.hierarchy.settings import WorkerSettings
from pto_core.hierarchy.tracing import Tracing, flight_file
from pto_core.interfaces import Policy, Scheduler, SchedulerPlugin
from pto_core.interfaces.observer import WorkerInfo
from pto_core.interrupts import Interrupts
from pto_core.plugins import load_observers

_FRAME_BYTES = 128
_GRACE_S = 2.0
_CUT_SHORT_S = 0.2
_CLOSED = Failure.of(AbortedError("the Worker was closed inside the run"))
_NO_CHILD = Failure.of(
    CapacityError("no child can run the task; add Workers on other hosts with add_worker")
)


class ChildGroup:
    """The children of a Worker, from its start to :meth:`close`.

    Only the process ``process`` may use it; the copy in a forked process is unusable.
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
        self.settings = settings
        self.path = path
        self.arena = arena
        self.specs: list[ChildSpec] = child_specs(settings, path, workers)
        self.observers = load_observers().log_problems()
        self.info = WorkerInfo(path, settings.level, self.process)
        self.hosts = ChildHosts(self.specs, partial(ChildGroup.observe, weakref.proxy(self)))
        self.registry = registry
        queue_bytes = config["child_queue_bytes"]
        self.opener = Opener(settings.transport, queue_bytes // _FRAME_BYTES, queue_bytes)
        self._relays = [child for child, spec in enumerate(self.specs) if spec.has_relay]
        self.memory = worker_memory(self.specs, self.opener, config, arena, path)
        cpus = len(os.sched_getaffinity(0))
        _hierarchy.create_progress_table(self.memory.progress_table, len(self.specs), cpus)
        self._bells = self._open_bells()
        self.processes = ChildProcesses(timeout_s=config["child_start_timeout_s"])
        self.placement, inputs = placement_of(settings, policy, has_relays=bool(self._relays))
        self.restarts = Restarts(self.specs, is_enabled=config["on_worker_death"] != "reroute")
        self.hooks = DriverHooks(self, [spec.path for spec in self.specs], self.restarts)
        self.driver = Driver(
            children=[
                (int(spec.kind), config["child_window"], spec.receives_use, spec.is_spawned)
                for spec in self.specs
            ],
            rings=self.memory.rings,
            progress=self.memory.progress_table,
            trace=(self.memory.traces, trace_ring_records(config)),
            hooks=self.hooks,
            callables=registry.live,
            next_level_space=(
                CallableSpace.LOCAL_PYTHON if workers or self._relays else CallableSpace.LOCAL_CHIP
            ),
            repeats_lost=config["on_worker_death"] != "fail",
            snapshot_limit=config["snapshot_limit"],
            task_timeout_ms=settings.task_timeout_ms,
            policy=self.placement or inputs,
            inputs=inputs,
            attached=attached_by_spawned(self.memory.mappings),
        )
        self.control = Control(self.driver, self.hooks.paths)
        self.tracing = Tracing(self, path, config)
        self.buffers = self._buffer_table()
        # These functions break reference cycles: the driver and its open run refer to each other,
        # and a policy may refer to handles of tasks. close() calls them too.
        self._finalizers = [weakref.finalize(self, partial(close_driver, self.driver))]
        if self.placement is not None:
            self._finalizers.append(weakref.finalize(self, self.placement.forget))

    def _buffer_table(self) -> BufferTable | None:
        if not self._relays:
            return None
        return BufferTable(self.driver, self.arena, self.settings.config["remote_buffer_bytes"])

    def observe(self, hook: str, child: int, **arguments: Any) -> None:
        """Notify observers of an event of a child."""
        path = self.specs[child].path
        self.observers.notify(hook, worker=self.info, child=path, **arguments)

    @property
    def chip_count(self) -> int:
        """The number of chips; chips are the first children."""
        return len(self.settings.device_ids)

    def start(self, is_cancelled: Callable[[], bool]) -> None:
        """Start all children. If one fails to start, end the others.

        Raises ChildStartError, and AbortedError soon after ``is_cancelled()`` is true.
        """
        with ExitStack() as undoing:
            undoing.callback(self.close)
            self.hosts.await_all(is_cancelled)
            connections = {}
            for child, spec in enumerate(self.specs):
                if spec.is_empty:
                    self.set_empty(child, spec)
                    continue
                connections[child] = self.connect(child)
                undoing.callback(connections[child].discard)
            plans = {child: self.plan(child, made) for child, made in connections.items()}
            register_parkable(self.driver)
            try:
                self.processes.start(plans, is_cancelled)
            except ChildStartError:
                for child in plans:
                    self.hosts.is_placed(child)  # raises the reason if its agent has ended
                raise
            for child, connection in connections.items():
                self.attach(child, connection)
                self.driver.child_ready(child)
                self.observe("pto_child_started", child)
            undoing.pop_all()

    def set_spec(self, child: int, spec: ChildSpec) -> None:
        """Replace the spec of a place, because a child joins or has left."""
        self.specs[child] = spec
        self.hooks.paths[child] = spec.path

    def set_empty(self, child: int, place: ChildSpec, failure: Failure = _NO_CHILD) -> None:
        """Inform the driver that a place has no child. Tasks do not wait for one.

        ``failure``: the reason for tasks that the last child of the place has not ended.
        """
        self.set_spec(child, place)
        self.driver.set_present(child, False)
        self.driver.child_lost(child, self.driver.add_cause(failure.pack()))

    def connect(self, child: int) -> ChildConnection:
        """Create the connection of a child before its start."""
        memory = self.memory
        return self.opener.connect(
            self.specs[child].path,
            memory=(memory.connection(child)[0], self.opener.memory_bytes),
            parent_bell=_hierarchy.progress_table_parent_bell(memory.progress_table),
            child_bell=self._bell(child),
        )

    def attach(self, child: int, connection: ChildConnection) -> None:
        """Open the parent's end of a connection for the driver."""
        remote = self.specs[child].remote
        if remote is not None:
            self.processes[child].exit_error = remote.exit_error
        opened = connection.open_parent()
        self.driver.attach(
            child, opened.table, opened.end, opened.largest_frame_bytes, opened.is_python
        )

    def plan(self, child: int, connection: ChildConnection) -> ChildPlan:
        """Return the plan for the start of a child; a spawned child receives callables in it."""
        spec = self.specs[child]
        if spec.remote is not None:
            return self._remote_plan(child, spec.remote, connection)
        context = ChildContext(
            child,
            self.memory.progress_table,
            connection,
            {} if spec.is_spawned else self.registry.inherited(spec.space),
            self.registry.deliveries(spec.space) if spec.is_spawned else {},
        )
        body: ChipBody | WorkerBody | SubBody
        if spec.device is not None:
            if not spec.is_spawned:
                refuse_fork_with_vendor_libraries(self.settings.config)
            body = ChipBody(context, spec.device, self.settings.config)
        elif spec.worker is not None:
            body = WorkerBody(context, spec.worker)
        else:
            body = SubBody(context, self.settings.config)
        passes_on = spec.worker is not None and spec.worker.spawns
        return ChildPlan(
            spec.path, body, self.memory.mappings, passes_on, spec.start_method, self._bells
        )

    def _remote_plan(
        self, child: int, remote: RemoteChild, connection: ChildConnection
    ) -> ChildPlan:
        spec, memory = self.specs[child], self.memory
        assert self.buffers is not None
        context = ChildContext(child, memory.progress_table, connection)
        ranges = attached_by_spawned(memory.mappings)
        address, _ = memory.connection(child)
        body = remote.body(
            context,
            self.registry.of_child(child, spec.space),
            ranges,
            self.buffers.place,
            address + self.opener.memory_bytes,
            (memory.digests, self._relays.index(child), len(self._relays)),
            self.settings.config["child_queue_bytes"],
            self.settings.config["child_window"],
        )
        return ChildPlan(
            spec.path,
            body,
            memory.mappings,
            start_method=spec.start_method,
            descriptors=self._bells,
        )

    def begin_restart(self, child: int) -> Replacement:
        """Start a new process for a lost child without waiting for it. Raises PtoError."""
        self.memory.reset_connection(child)
        connection = self.connect(child)
        try:
            # Read the digests before the plan, so that no callable is missed: a callable that is
            # registered in between is delivered twice.
            known = self.registry.digests(child, self.specs[child].space)
            self.processes.replace(child, self.plan(child, connection))
        except BaseException:
            connection.discard()
            raise
        return Replacement(connection, known)

    def finish_restart(self, child: int, replacement: Replacement) -> None:
        """Connect a new process that is ready; deliver callables that were registered meanwhile."""
        self.attach(child, replacement.connection)
        # Registrations from now on reach the child, because it is attached. Send those made before.
        for late in self.registry.since(replacement.known, child, self.specs[child].space):
            self.control.send(child, "callable", late.identity.digest, late.deliveries())
        self.tracing.child_restarted(child)
        self.driver.child_ready(child)

    def completed_by(self, child: int) -> int:
        """Return the number of tasks that have ended in a child, also in its earlier processes."""
        return int(_hierarchy.progress_table_record(self.memory.progress_table, child)["completed"])

    def deliver(self, registration: Registration) -> None:
        """Deliver a callable to all children that can run it, or to none; raise ControlError."""
        children = self._targets(registration)
        for child in children:
            remote = self.specs[child].remote
            if remote is not None and (used := remote.used_by(registration)):
                self.control.require(child, "modules", used)
        self.control.deliver(registration, children)

    def forget(self, registration: Registration) -> None:
        """Remove a callable from the children that have it."""
        digest = registration.identity.digest
        self.control.ask_all(self._targets(registration), "forget", digest)

    def ask(self, child: int, operation: str, *arguments: Any) -> Any:
        """Return the reply of a child to a request, sent after its restart; raise ControlError."""
        self.hooks.await_restart(child)
        return self.control.ask(child, operation, *arguments)

    def trace_loss(self, child: int) -> None:
        """State in an open trace that a child was lost."""
        self.tracing.child_lost(child)

    def release_trace_memory(self) -> None:
        """Free the pages of the trace rings."""
        self.memory.release_traces()

    def statistics(self) -> dict[str, Any]:
        """Return the counters of the driver, of restarts, and of hosts, as plain data."""
        counts = {**self.driver.statistics(), **self.restarts.statistics()}
        return {**counts, "placing": self.hosts.placing}

    def close(self) -> None:
        """End every child, and an open run. Tasks that have not been sent do not run.

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
            steps.callback(self.hosts.close)
            steps.callback(self.processes.kill_all)
            for finalizer in self._finalizers:
                steps.callback(finalizer)
            steps.callback(self.driver.stop, cause)
            # This ends an open run; its results are discarded.
            is_running = self.driver.is_running
            grace_s = _CUT_SHORT_S if is_running else _GRACE_S
            steps.callback(self.processes.end, grace_s, forgets=False)
            self.tracing.close(lambda: is_running or interrupts.signal is not None)
            with fork_lock():  # another thread may be restarting a child
                self.restarts.stop()
            self.driver.cancel(cause)
            self.control.close_all([process.index for process in self.processes])

    def _bell(self, child: int) -> int:
        return _hierarchy.progress_table_child_bell(self.memory.progress_table, child)

    def _open_bells(self) -> tuple[int, ...]:
        """Return descriptors that ring the doorbells of relays, which also wait for sockets."""
        return tuple(_hierarchy.open_bell_descriptor(self._bell(child)) for child in self._relays)

    def _close_bells(self) -> None:
        for descriptor in self._bells:
            os.close(descriptor)
        self._bells = ()

    def _targets(self, registration: Registration) -> list[int]:
        children = enumerate(self.specs)
        return [
            child
            for child, spec in children
            if not spec.is_empty and registration.is_for(child, spec.space)
        ]


def worker_memory(
    specs: Sequence[ChildSpec], opener: Opener, config: Config, arena: SharedArena, path: str
) -> WorkerMemory:
    """Reserve the memory that a Worker shares with its children."""
    return WorkerMemory(
        progress_table_bytes=_hierarchy.progress_table_bytes(len(specs)),
        connection_bytes=[opener.memory_bytes + spec.reason_bytes for spec in specs],
        digest_bytes=max((spec.digest_bytes for spec in specs), default=0),
        trace_bytes=_hierarchy.trace_bytes(len(specs), trace_ring_records(config)),
        trace_file=flight_file(config, path),
        heap_ring_size=config["heap_ring_size"],
        arena=arena,
    )


def placement_of(
    settings: WorkerSettings, policy: Policy | Scheduler | None, *, has_relays: bool
) -> tuple[Placement | None, NearInputs | None]:
    """Return the caller of the policy, None for a policy of the core, and the followed inputs."""
    source = None if policy else settings.policy
    chosen = policy or default_policy(settings, has_relays=has_relays)
    if isinstance(chosen, NearInputs):
        return None, chosen
    if chosen is least_loaded:
        return None, None
    placement = Placement(chosen, policy_name(source, chosen))
    return placement, placement.inputs


def default_policy(settings: WorkerSettings, *, has_relays: bool) -> Policy | Scheduler:
    """Return the policy that a setting names, or the default one."""
    if settings.policy is not None:
        return policy_of(settings.policy)
    return NearInputs() if has_relays else least_loaded


def policy_name(plugin: SchedulerPlugin | None, policy: object) -> str:
    """Return the name of a policy in messages."""
    if plugin is not None:
        return f"placement policy of the plugin {plugin.name!r}"
    return f"placement policy {getattr(policy, '__qualname__', type(policy).__qualname__)}"


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
