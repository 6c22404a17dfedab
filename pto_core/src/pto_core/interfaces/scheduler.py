"""The scheduler interface: the engine of a Worker's runs, and the policy that places its tasks.

A plugin of this family provides an engine (:class:`EnginePlugin`) or a placement policy
(:class:`PolicyPlugin`). ``pto new plugin scheduler NAME`` writes a policy.
``Worker(3, num_sub_workers=4, policy="turns")`` uses the policy ``turns``. A policy that depends on
the task has the method :meth:`TaskPolicy.pick` instead of ``__call__``. An engine is chosen with
``engine=``; its plugin has the method ``engine(configuration, policy)`` instead of ``policy()``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

from pto_core.interfaces.plugin import Plugin

if TYPE_CHECKING:
    from pto_core.hierarchy.engine.configuration import Configuration
    from pto_core.hierarchy.engine.deadlock import Deadlock
    from pto_core.hierarchy.engine.events import Event
    from pto_core.hierarchy.engine.instructions import Instruction

Policy: TypeAlias = Callable[[Sequence[tuple[int, int]], int], int]
"""A function that selects the child for a task without a pin. The first argument lists the children
that can take the task now, in ascending order, each with its number of frames in flight. The list
is never empty and must not be changed. The second argument is the child of the task's last
producer, or -1. The result is one of the listed children. An engine calls the policy during a
dispatch: the policy must not block, and must not use the Worker.
"""


class Candidate(NamedTuple):
    """A child that can take a task now.

    ``in_flight``: its number of frames. ``held_bytes``: the bytes of the task's inputs that it has.
    A child on this host has all of them.
    """

    child: int
    in_flight: int
    held_bytes: int


class PlacedTask(NamedTuple):
    """The task for which a policy picks a child.

    ``number``: as in errors. ``callable``: the name of its callable. ``input_bytes``: the bytes
    that it reads. Tensors of less than 4 KiB are not counted, because they travel with the task.
    """

    number: int
    callable: str
    input_bytes: int


@runtime_checkable
class TaskPolicy(Protocol):
    """A policy that depends on the task.

    A policy like the core's ``near_inputs``::

        class NearInputs:
            def pick(
                self, candidates: Sequence[Candidate], preferred: int, task: PlacedTask
            ) -> int:
                def cost(each: Candidate) -> tuple[int, int]:
                    missing = task.input_bytes - each.held_bytes
                    return each.in_flight + min(missing >> 24, 2), missing

                return min(candidates, key=cost).child
    """

    def pick(self, candidates: Sequence[Candidate], preferred: int, task: PlacedTask) -> int:
        """Return the child for the task. The rules are those of a :data:`Policy`."""


@runtime_checkable
class EnginePolicy(Protocol):
    """A policy as an engine receives it: the Worker adds the facts about candidates and task."""

    def pick(self, candidates: Sequence[tuple[int, int]], preferred: int, task: int) -> int:
        """Return the child for the task with this number; otherwise as a :data:`Policy`."""


Snapshot: TypeAlias = dict[str, Any]
"""A snapshot as plain data: dictionaries, lists and numbers."""


class Scheduler(Protocol):
    """The engine of a Worker's runs: takes events and returns instructions.

    It has no clock, no thread and no I/O. A driver reports everything that happens as events, and
    executes the instructions. A complete driver of one run, with children that answer at
    once::

        engine = ReferenceEngine(configuration)
        engine.handle(ChildReady(0))
        engine.handle(RunBegin())
        engine.handle(Submit(Kind.SUB))
        engine.handle(RunEnd())
        for instruction in engine.handle(Dispatch()):
            if isinstance(instruction, Send):
                engine.handle(Completion(instruction.child, instruction.count))

    Only one thread at a time calls an engine, and no call blocks. If the answer to a submit is
    ``Blocked``, the driver reports other events, dispatches, and submits again. If the submit stays
    blocked while :meth:`is_quiescent` is true, :meth:`deadlock` proves that it can never succeed.

    ``pto_core.hierarchy.engine.events`` defines the events, and
    ``pto_core.hierarchy.engine.instructions`` defines the instructions. The reference engine
    specifies the result of each event.
    """

    def handle(self, event: Event) -> Sequence[Instruction]:
        """Handle an event; return its result and the instructions for the driver, in order.

        Raises :class:`~pto_core.errors.UsageError` if the program broke a rule,
        :class:`~pto_core.errors.CapacityError` if a submit needs more bytes than its heap ring has,
        and :class:`~pto_core.errors.ProtocolError` if a child reports something impossible. The
        engine is unchanged after an error.
        """

    def is_quiescent(self) -> bool:
        """Return whether no frame is in flight and no task is ready.

        In this state no completion can arrive, so only the program can cause the next event.
        """

    def deadlock(self) -> Deadlock | None:
        """Return the proof that the last event, a submit that was blocked, can never succeed.

        Returns None if the submit may still succeed, or if the last event was not a blocked submit.
        """

    def snapshot(self) -> Snapshot:
        """Return the observable state."""

    def validate(self) -> None:
        """Raise :class:`~pto_core.errors.InternalError` if an invariant is broken; for tests."""


@runtime_checkable
class SchedulerPlugin(Plugin, Protocol):
    """The common members of both kinds of plugins. Each Worker has its own engine and policy.

    Capabilities: ``engine`` or ``policy``, depending on the method that the plugin has. An engine
    may also have ``reference_order``: for each event, it returns the same instructions as the
    reference engine.
    """


@runtime_checkable
class EnginePlugin(SchedulerPlugin, Protocol):
    """A plugin that provides an engine; users choose it with ``engine=``."""

    def engine(self, configuration: Configuration, policy: Policy | EnginePolicy) -> Scheduler:
        """Return a new engine for one Worker.

        Called once when a Worker starts. The engine calls ``policy`` to place each single task that
        has no pin and whose hinted child, if any, has no free space; ``policy`` never raises. If it
        is an :class:`EnginePolicy`, the engine calls its ``pick`` with the task instead. The
        result may be a :class:`~pto_core.hierarchy.engine.NativeEngine`, which the driver calls
        without Python.
        """


@runtime_checkable
class PolicyPlugin(SchedulerPlugin, Protocol):
    """A plugin that provides a placement policy; users choose it with ``policy=``."""

    def policy(self) -> Policy | TaskPolicy:
        """Return a policy for one Worker; called once when the Worker starts."""
