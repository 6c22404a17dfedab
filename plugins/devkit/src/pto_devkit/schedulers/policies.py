"""The contract of placement policies."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from pto_core._hierarchy import NearInputs
from pto_core.interfaces import Candidate, PlacedTask, Policy, Scheduler
from pto_devkit.engine.events import NONE, Hazards
from pto_devkit.failure import expect
from pto_devkit.random_seed import random_numbers
from pto_devkit.schedulers.subject import SchedulerSubject
from pto_devkit.schedulers.verdicts import expect_end, expect_failures, expect_values
from pto_devkit.schedulers.world import CALM, ROUGH

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
