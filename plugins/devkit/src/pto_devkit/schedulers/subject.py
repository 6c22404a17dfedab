"""The subject of a check: a placement policy that is found by name."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from pto_core import plugins
from pto_core._hierarchy import NearInputs
from pto_core.interfaces import (
    Candidate,
    PlacedTask,
    Policy,
    Scheduler,
    SchedulerPlugin,
)
from pto_devkit.engine import ReferenceEngine
from pto_devkit.engine.events import Hazards
from pto_devkit.schedulers.programs import ProgramWriter
from pto_devkit.schedulers.world import Chances, World, configuration_of


class WithoutInputs:
    """A policy of a plugin as an engine receives it, for tasks without inputs."""

    def __init__(self, policy: Policy | Scheduler) -> None:
        self._policy = policy

    def pick(self, candidates: Sequence[tuple[int, int]], preferred: int, task: int) -> int:
        """Return the child that the policy picks."""
        if isinstance(self._policy, NearInputs):
            return self._policy.pick(candidates, preferred, task)
        if isinstance(self._policy, Scheduler):
            offered = [Candidate(child, in_flight, 0) for child, in_flight in candidates]
            return self._policy.pick(offered, preferred, PlacedTask(task, "task", 0))
        return self._policy(candidates, preferred)


@dataclass(frozen=True)
class SchedulerSubject:
    """A scheduler under test."""

    name: str
    plugin: SchedulerPlugin

    @classmethod
    def load(cls, name: str) -> SchedulerSubject:
        """Find the scheduler by name, as users do. Raises an error if it is not healthy."""
        plugin = plugins.load_scheduler(name)
        return cls(plugin.name, plugin)

    def policy(self) -> Policy | Scheduler:
        """Return a new policy of the plugin."""
        return self.plugin.policy()

    def run(
        self,
        numbers: random.Random,
        hazards: Hazards,
        chances: Chances,
        *,
        ring_slabs: tuple[int, ...] = (4, 6, 16, 4096),
        validates: bool = True,
    ) -> World:
        """Run one random program to its end, on a reference engine that uses the policy.

        ``ring_slabs``: possible sizes of the heap rings, in units of 1024 bytes. ``validates``:
        whether ``validate()`` is called after each event.
        """
        program = ProgramWriter(numbers, hazards, tasks=numbers.randint(1, 40)).write()
        configuration = configuration_of(
            program,
            ring_size=1024 * numbers.choice(ring_slabs),
            window=numbers.choice([1, 2, 5, 64]),
            repeats_lost=numbers.random() < 0.5,
        )
        engine = ReferenceEngine(configuration, policy=WithoutInputs(self.policy()))
        world = World(program, configuration, engine, numbers, chances, validates=validates)
        world.run()
        return world
