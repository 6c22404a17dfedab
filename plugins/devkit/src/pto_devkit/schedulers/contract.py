"""The contract of placement policies: its subject, the checks, and the test class."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from pto_core import plugins
from pto_core._worker import NearInputs
from pto_core.interfaces import (
    Candidate,
    PlacedTask,
    Policy,
    Scheduler,
    SchedulerPlugin,
)
from pto_devkit.checks import contract_test, expect, random_numbers
from pto_devkit.engine import ReferenceEngine
from pto_devkit.engine.interface import NONE, Hazards
from pto_devkit.schedulers.programs import ProgramWriter
from pto_devkit.schedulers.world import (
    CALM,
    ROUGH,
    Chances,
    SchedulerWorld,
    configuration_of,
    expect_end,
    expect_failures,
    expect_values,
)


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
    ) -> SchedulerWorld:
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
        world = SchedulerWorld(
            program, configuration, engine, numbers, chances, validates=validates
        )
        world.run()
        return world


_DECISIONS = 2000
_CHILDREN = 16
_TASKS = 6
_INPUT_BYTES = 1 << 16


def check_picks_a_candidate(scheduler: SchedulerSubject, seed: int | None = None) -> None:
    """Require that the policy returns one of the candidates."""
    with random_numbers(seed) as numbers:
        policy = scheduler.policy()
        for number in range(_DECISIONS):
            candidates, preferred = _question(numbers, policy)
            picked = _asked(policy, list(candidates), preferred, number)
            expect(
                isinstance(picked, int) and picked in {each[0] for each in candidates},
                f"picked {picked!r} of {candidates}, preferred {preferred}",
            )


def check_arguments_stay(scheduler: SchedulerSubject, seed: int | None = None) -> None:
    """Require that the policy does not change the list of candidates."""
    with random_numbers(seed) as numbers:
        policy = scheduler.policy()
        for number in range(_DECISIONS):
            candidates, preferred = _question(numbers, policy)
            given = list(candidates)
            _asked(policy, given, preferred, number)
            expect(given == candidates, f"the policy changed {candidates} to {given}")


def check_runs_with_policy(scheduler: SchedulerSubject, seed: int | None = None) -> None:
    """Require that random programs that use the policy complete with the right values."""
    with random_numbers(seed) as numbers:
        for chances in (CALM, ROUGH) * 10:
            world = scheduler.run(numbers, Hazards.FULL, chances, validates=False)
            expect_end(world)
            expect_values(world)
            if chances is CALM:
                expect_failures(world)


def check_a_worker_asks_the_policy(scheduler: SchedulerSubject, seed: int | None = None) -> None:
    """Require that a Worker asks the policy for each task, with the facts about the task.

    A policy that has the method ``pick`` is asked by ``pick``; others are called.
    """
    from pto_core import TaskArgs, TensorArgType, Worker

    policy = scheduler.policy()
    if isinstance(policy, NearInputs):
        return  # the driver knows this policy, and asks it without Python
    recorder = _TaskRecorder(policy) if isinstance(policy, Scheduler) else _Recorder(policy)
    with Worker(3, num_sub_workers=2, policy=recorder) as worker:
        handle = worker.register(_read)
        array = worker.shared_array(_INPUT_BYTES, "uint8")

        def graph(orch: Any, args: Any, config: Any) -> None:
            for _ in range(_TASKS):
                given = TaskArgs()
                given.add_tensor(array, TensorArgType.INPUT)
                orch.submit_sub(handle, given)

        worker.run(graph)
    asked = recorder.asked
    expect(len(asked) == _TASKS, f"the policy was asked for {len(asked)} of {_TASKS} tasks")
    if not isinstance(recorder, _TaskRecorder):
        return
    tasks = [task for task, _ in asked]
    expect(
        sorted({task.number for task in tasks}) == list(range(_TASKS))
        and all(task.callable.endswith("_read") for task in tasks)
        and all(task.input_bytes == _INPUT_BYTES for task in tasks),
        f"the policy received the tasks {tasks}",
    )
    expect(
        all(each.held_bytes == _INPUT_BYTES for _, offered in asked for each in offered),
        f"children of this host lack inputs: {asked}",
    )


class _Recorder:
    """Records the calls of a policy."""

    def __init__(self, policy: Policy) -> None:
        self.asked: list[Any] = []
        self._policy = policy

    def __call__(self, candidates: Sequence[tuple[int, int]], preferred: int) -> int:
        self.asked.append(list(candidates))
        return self._policy(candidates, preferred)


class _TaskRecorder:
    """Records the calls of a policy that depends on the task."""

    def __init__(self, policy: Scheduler) -> None:
        self.asked: list[Any] = []
        self._policy = policy

    def pick(self, candidates: Sequence[Candidate], preferred: int, task: PlacedTask) -> int:
        self.asked.append((task, list(candidates)))
        return self._policy.pick(candidates, preferred, task)


def _read(args: Any) -> None:
    args.tensor(0).sum()


def _asked(
    policy: Policy | Scheduler, candidates: list[Any], preferred: int, number: int
) -> object:
    if isinstance(policy, NearInputs):
        return policy.pick(candidates, preferred, number)
    if isinstance(policy, Scheduler):
        return policy.pick(candidates, preferred, PlacedTask(number, "task", 1 << 30))
    return policy(candidates, preferred)


def _question(numbers: random.Random, policy: object) -> tuple[list[Any], int]:
    """Return candidates in the form that the policy receives, and the preferred child."""
    children = sorted(numbers.sample(range(_CHILDREN), numbers.randint(1, _CHILDREN)))
    candidates: list[Any] = [(child, numbers.choice([0, 0, 1, 5, 63])) for child in children]
    if isinstance(policy, Scheduler) and not isinstance(policy, NearInputs):
        candidates = [
            Candidate(child, in_flight, numbers.choice([0, 4096, 1 << 30]))
            for child, in_flight in candidates
        ]
    return candidates, numbers.choice([NONE, numbers.randrange(_CHILDREN)])


class SchedulerContract:
    """The contract of placement policies. A subclass sets ``scheduler`` to its name."""

    scheduler: ClassVar[str]
    subject: ClassVar[SchedulerSubject]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.subject = SchedulerSubject.load(cls.scheduler)

    test_picks_a_candidate = contract_test(check_picks_a_candidate)
    test_arguments_stay = contract_test(check_arguments_stay)
    test_runs_with_policy = contract_test(check_runs_with_policy)
    test_a_worker_asks_the_policy = contract_test(check_a_worker_asks_the_policy)
