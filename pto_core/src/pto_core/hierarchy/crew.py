"""The children of a Worker that has started, and the driver that reaches them."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

from pto_core import _hierarchy
from pto_core._hierarchy import CallableSpace, Driver
from pto_core.errors import AbortedError, UsageError
from pto_core.hierarchy.children import ChipBody, Post, SubBody, WorkerBody
from pto_core.hierarchy.control import Control
from pto_core.hierarchy.endpoints import ChildConnection, Opener
from pto_core.hierarchy.engine import (
    ChildConfiguration,
    Configuration,
    RingConfiguration,
    least_loaded,
)
from pto_core.hierarchy.engine.native import driven
from pto_core.hierarchy.failures import Failure
from pto_core.hierarchy.memory import SharedArena, WorkerMemory
from pto_core.hierarchy.placement import Placement
from pto_core.hierarchy.processes import (
    ChildPlan,
    ChildProcesses,
    attached_by_children,
    register_parkable,
)
from pto_core.hierarchy.registry import Registration, Registry
from pto_core.hierarchy.roster import Member, roster
from pto_core.hierarchy.settings import WorkerSettings
from pto_core.hierarchy.supervision import Restart, Supervision
from pto_core.interfaces import Policy
from pto_core.interrupts import Interrupts

if TYPE_CHECKING:
    from pto_core.hierarchy.worker import Worker

_FRAME_BYTES = 128
_GRACE_S = 2.0
_CUT_SHORT_S = 0.2
_CLOSED = Failure.of(AbortedError("the Worker was closed inside the run"))


class Crew:
    """Made and started by ``Worker.init``; all of it is gone after :meth:`close`.

    ``process`` is the one that it belongs to: what a fork inherits of it is of no use.
    """

    def __init__(
        self,
        settings: WorkerSettings,
        path: str,
        registry: Registry,
        workers: Sequence[Worker],
        arena: SharedArena,
        policy: Policy | None,
    ) -> None:
        config = settings.config
        self.process = os.getpid()
        self.settings = settings
        self.arena = arena
        self.members: list[Member] = roster(settings, path, workers)
        self.registry = registry
        queue_bytes = config["child_queue_bytes"]
        self.opener = Opener(settings.transport, queue_bytes // _FRAME_BYTES, queue_bytes)
        count = len(self.members)
        self.memory = WorkerMemory(
            board_bytes=_hierarchy.board_bytes(count),
            connection_bytes=[self.opener.memory_bytes] * count,
            heap_ring_size=config["heap_ring_size"],
            arena=arena,
        )
        _hierarchy.create_board(self.memory.boards, count, len(os.sched_getaffinity(0)))
        self.processes = ChildProcesses(
            start_method=config["start_method"], timeout_s=config["child_start_timeout_s"]
        )
        if policy is None:
            policy = settings.policy.policy()
        self.placement = None if policy is least_loaded else Placement(policy)
        self.supervision = Supervision(self)
        self.driver = Driver(
            children=[(int(member.kind), config["child_window"]) for member in self.members],
            rings=self.memory.rings,
            board=self.memory.boards,
            hooks=self.supervision,
            callables=registry.live,
            next_level_space=CallableSpace.LOCAL_PYTHON if workers else CallableSpace.LOCAL_CHIP,
            engine=partial(make_engine, settings, self.members, self.memory.rings),
            snapshot_limit=config["snapshot_limit"],
            task_timeout_ms=settings.task_timeout_ms,
            policy=self.placement,
            attached=attached_by_children(config["start_method"], self.memory.mappings),
        )
        self.control = Control(self.driver, self.paths)
        # The driver and its open run refer to each other, and a policy perhaps to handles of tasks.
        # close() calls them itself: what a signal's handler raises where an object goes is dropped.
        closing = partial(close_driver, self.driver)
        self._endings = [weakref.finalize(self, closing)]
        if self.placement is not None:
            self._endings.append(weakref.finalize(self, self.placement.forget))

    @property
    def paths(self) -> list[str]:
        """The name of each child."""
        return [member.path for member in self.members]

    @property
    def chip_count(self) -> int:
        """How many of the children, the first ones, are chips."""
        return len(self.settings.device_ids)

    def start(self, is_cancelled: Callable[[], bool]) -> None:
        """Start every child, or none: raises ChildStartError, AbortedError if cancelled."""
        with ExitStack() as undoing:
            undoing.callback(self.close)
            ends = []
            for child in range(len(self.members)):
                ends.append(self.connect(child))
                undoing.callback(ends[-1].discard)
            plans = [self.plan(child, end) for child, end in enumerate(ends)]
            register_parkable(self.driver)
            self.processes.start(plans, is_cancelled)
            for child, end in enumerate(ends):
                self.attach(child, end)
                self.driver.child_ready(child)
            undoing.pop_all()

    def connect(self, child: int) -> ChildConnection:
        """Make the connection of a child that is about to be started."""
        memory = self.memory
        return self.opener.connect(
            self.members[child].path,
            memory=memory.connection(child),
            parent_bell=_hierarchy.board_parent_bell(memory.boards),
            child_bell=_hierarchy.board_child_bell(memory.boards, child),
        )

    def attach(self, child: int, connection: ChildConnection) -> None:
        """Hand the parent's end to the driver: what is sent from now on arrives."""
        opened = connection.open_parent()
        self.driver.attach(
            child, opened.table, opened.end, opened.largest_frame_bytes, opened.is_python
        )

    def plan(self, child: int, connection: ChildConnection) -> ChildPlan:
        """Say how a child is started: with what a fork hands over, or is told otherwise."""
        member = self.members[child]
        is_forked = self.settings.config["start_method"] == "fork"
        post = Post(
            child,
            self.memory.boards,
            connection,
            self.registry.table(member.space) if is_forked else {},
            {} if is_forked else self.registry.deliveries(member.space),
        )
        body: ChipBody | WorkerBody | SubBody
        if member.device is not None:
            body = ChipBody(post, member.device, self.settings.config)
        elif member.worker is not None:
            body = WorkerBody(post, member.worker)
        else:
            body = SubBody(post)
        passes_on = member.worker is not None and member.worker.spawns
        return ChildPlan(member.path, body, self.memory.mappings, passes_on=passes_on)

    def begin(self, child: int) -> Restart:
        """Start a child in the place of one that is lost, and wait for nobody; raises PtoError."""
        self.memory.reset_connection(child)
        connection = self.connect(child)
        try:
            known = self.registry.digests()  # at least in the plan
            self.processes.begin(child, self.plan(child, connection))
        except BaseException:
            connection.discard()
            raise
        return Restart(connection, known)

    def finish(self, child: int, restart: Restart) -> None:
        """Give tasks to a child that was started anew and is ready now."""
        self.attach(child, restart.connection)
        # Who registers another one from here on finds the child attached, and tells it.
        for late in self.registry.since(restart.known, self.members[child].space):
            self.control.tell(child, "callable", late.identity.digest, late.deliveries())
        self.driver.child_ready(child)

    def completed_by(self, child: int) -> int:
        """Count the tasks that a child, and those whose place it took, have ended."""
        return int(_hierarchy.board_record(self.memory.boards, child)["completed"])

    def deliver(self, registration: Registration) -> None:
        """Bring a callable to all who may run it, or to none; raises ControlError."""
        self.control.deliver(registration, self._targets(registration.identity.space))

    def forget(self, registration: Registration) -> None:
        """Let those who have it forget a callable."""
        known = registration.identity
        self.control.ask_all(self._targets(known.space), "forget", known.digest)

    def ask(self, child: int, operation: str, *arguments: Any) -> Any:
        """Let a child do something beside tasks, once it is there; raises ControlError."""
        self.supervision.await_return(child)
        return self.control.ask(child, operation, *arguments)

    def statistics(self) -> dict[str, Any]:
        """Count what happens, as plain data."""
        return {**self.driver.statistics(), **self.supervision.statistics()}

    def close(self) -> None:
        """End every child; twice is fine, and nothing in a process that inherited it.

        A run that is open ends: what has not been sent does not run, and who waits comes back.
        """
        if self.process != os.getpid():
            return
        cause = self.driver.add_cause(_CLOSED.pack())
        with Interrupts(), ExitStack() as steps:  # all of them, whatever comes out of one
            steps.callback(self.memory.close)
            steps.callback(self.processes.kill_all)  # nobody looks after them any more
            for ending in self._endings:
                steps.callback(ending)
            steps.callback(self.driver.stop, cause)
            # Nobody wants the results of tasks whose run ends here.
            grace_s = _CUT_SHORT_S if self.driver.is_running else _GRACE_S
            steps.callback(self.processes.end, grace_s, forgets=False)
            self.supervision.stop()
            self.driver.cancel(cause)
            self.control.close_all(range(len(self.processes)))

    def _targets(self, space: CallableSpace) -> list[int]:
        return [child for child, member in enumerate(self.members) if member.space == space]


def make_engine(
    settings: WorkerSettings,
    members: Sequence[Member],
    rings: Sequence[tuple[int, int]],
    policy: Policy | None,
) -> object:
    """Return the engine of a Worker as its driver takes it; the driver calls this once."""
    config = settings.config
    configuration = Configuration(
        tuple(ChildConfiguration(member.kind, config["child_window"]) for member in members),
        tuple(RingConfiguration(*ring) for ring in rings),
        config["on_worker_death"] != "fail",
    )
    return driven(settings.engine.engine(configuration, policy or least_loaded))


def close_driver(driver: Driver) -> None:
    """Close it; where this thread is in a call of it, as the garbage collector may be, later."""
    try:
        driver.close()
    except UsageError:
        threading.Thread(target=driver.close).start()
