"""The subject of a check: an engine or a placement policy that is found by name."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from pto_core import plugins
from pto_core._hierarchy import NearInputs
from pto_core.hierarchy.engine import Configuration, ReferenceEngine, least_loaded
from pto_core.hierarchy.engine.events import Hazards
from pto_core.interfaces import (
    Candidate,
    EnginePlugin,
    EnginePolicy,
    PlacedTask,
    Policy,
    PolicyPlugin,
    Scheduler,
    TaskPolicy,
)
from pto_devkit.failure import ContractError
from pto_devkit.schedulers.programs import ProgramWriter
from pto_devkit.schedulers.world import Chances, World, configuration_of


class WithoutInputs:
    """A policy of a plugin as an engine receives it, for tasks without inputs."""

    def __init__(self, policy: Policy | TaskPolicy) -> None:
        self._policy = policy

    def pick(self, candidates: Sequence[tuple[int, int]], preferred: int, task: int) -> int:
        """Return the child that the policy picks."""
        if isinstance(self._policy, NearInputs):
            return self._policy.pick(candidates, preferred, task)
        if isinstance(self._policy, TaskPolicy):
            offered = [Candidate(child, in_flight, 0) for child, in_flight in candidates]
            return self._policy.pick(offered, preferred, PlacedTask(task, "task", 0))
        return self._policy(candidates, preferred)


@dataclass(frozen=True)
class SchedulerSubject:
    """A scheduler under test."""

    name: str
    plugin: EnginePlugin | PolicyPlugin

    @classmethod
    def load(cls, name: str) -> SchedulerSubject:
        """Find the scheduler by name, as users do. Raises an error if it is not healthy."""
        plugin = plugins.load_scheduler(name)
        return cls(plugin.name, plugin)

    def engine(
        self, configuration: Configuration, policy: Policy | EnginePolicy = least_loaded
    ) -> Scheduler:
        """Return a new engine of the plugin; for a policy, a reference engine that uses it."""
        if isinstance(self.plugin, EnginePlugin):
            return self.plugin.engine(configuration, policy)
        return ReferenceEngine(configuration, policy=WithoutInputs(self.policy()))

    def policy(self) -> Policy | TaskPolicy:
        """Return a new policy of the plugin."""
        if not isinstance(self.plugin, PolicyPlugin):
            raise ContractError(f"the scheduler {self.name!r} is an engine, not a policy")
        return self.plugin.policy()

    def run(
        self,
        numbers: random.Random,
        hazards: Hazards,
        chances: Chances,
        *,
        ring_slabs: tuple[int, ...] = (4, 6, 16, 4096),
        policy: Policy = least_loaded,
        validates: bool = True,
    ) -> World:
        """Run one random program to its end.

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
        engine = self.engine(configuration, policy)
        world = World(program, configuration, engine, numbers, chances, validates=validates)
        world.run()
        return world
