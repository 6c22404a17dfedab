"""The scheduler interface: the policy that places the tasks of a Worker.

The engine of a Worker finds the tasks that are ready and the children that can take one; the policy
picks the child. ``pto new plugin scheduler NAME`` writes a policy as a plugin.
``Worker(3, num_sub_workers=4, policy="turns")`` uses the policy ``turns``. A policy is a function
(:data:`Policy`), or an object that also sees the task (:class:`Scheduler`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, TypeAlias, runtime_checkable

from pto_core.interfaces.plugin import Plugin

Policy: TypeAlias = Callable[[Sequence[tuple[int, int]], int], int]
"""A function that selects the child for a task without a pin. The first argument lists the children
that can take the task now, in ascending order, each with its number of frames in flight. The list
is never empty and must not be changed. The second argument is the child of the task's last
producer, or -1. The result is one of the listed children. The engine calls the policy during a
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
class Scheduler(Protocol):
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
class SchedulerPlugin(Plugin, Protocol):
    """A plugin of the group ``pto.schedulers``: a placement policy, which ``policy=`` names.

    It has no capabilities.
    """

    def policy(self) -> Policy | Scheduler:
        """Return a policy for one Worker; called once when the Worker starts."""
