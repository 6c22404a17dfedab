"""A simulated driver with simulated children, which reports events in a random valid order.

A child runs its frames in order, each in two steps: it reads, and later it writes. It checks
requirements by the progress of the other children, not by asking the engine. It reports late and in
batches.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from pto_devkit.abi import Tag
from pto_devkit.checks import ContractError, expect
from pto_devkit.engine import (
    ChildConfiguration,
    Configuration,
    Deadlock,
    Engine,
    RingConfiguration,
)
from pto_devkit.engine.interface import (
    Allocate,
    Blocked,
    Cancel,
    CancelTask,
    ChildLost,
    ChildReady,
    Completion,
    Deadline,
    Delay,
    Dispatch,
    DropRegions,
    EndChild,
    Event,
    Instruction,
    Member,
    Outcome,
    RestoreRegions,
    Result,
    Resume,
    RunBegin,
    RunEnd,
    RunFinished,
    SaveRegions,
    ScopeBegin,
    ScopeEnd,
    Send,
    Submit,
    Submitted,
    TaskFinished,
    Tensor,
    Withdraw,
    Withdrawn,
)
from pto_devkit.schedulers.programs import (
    TILE,
    Begin,
    Cell,
    End,
    ExpectedEdges,
    Plan,
    Program,
    View,
    read_cells,
    sequential,
    written,
)

USER = 1 << 32
"""The address of the first buffer of the program."""
HEAP = 1 << 40
"""The address of the first heap ring."""
RING_DISTANCE = 1 << 24


@dataclass
class SimulatedChild:
    """A child: its frames, and the numbers of frames that it has completed and reported."""

    queue: deque[Send] = field(default_factory=deque)
    is_alive: bool = False
    returns: bool = True
    inputs: tuple[object, ...] | None = None
    """The values that the first frame of the queue has read; None if it has not started."""
    tasks: list[int] = field(default_factory=list)
    """The tasks of all frames that were sent to it."""
    outcomes: list[Outcome] = field(default_factory=list)
    """The outcomes of all completed frames; lost frames count as failed."""
    reported: int = 0
    asked: set[int] = field(default_factory=set)
    """The numbers of frames that the driver asked not to begin."""
    withdrawn: set[int] = field(default_factory=set)
    """Those that will not begin; the engine knows it."""

    def unbegun(self) -> list[Send]:
        """Return the frames of the queue that have not begun and were not withdrawn."""
        return [
            frame
            for frame in list(self.queue)[self.inputs is not None :]
            if frame.count not in self.withdrawn
        ]


@dataclass(frozen=True)
class Chances:
    """The probabilities of exceptional events in a step."""

    loss: float = 0.0
    join: float = 0.0
    """That a child that was lost for good becomes ready again."""
    deadline: float = 0.0
    cancel: float = 0.0
    withdraw: float = 0.0
    """That the driver withdraws a frame that has not begun."""
    cancel_task: float = 0.0
    delay: float = 0.0
    """That a task which failed waits before its next attempt."""


CALM = Chances()
ROUGH = Chances(loss=0.02, deadline=0.01)
CANCELLED = Chances(loss=0.01, cancel=0.02, withdraw=0.05)
MOVED = Chances(withdraw=0.2)
PARTLY_CANCELLED = Chances(loss=0.01, withdraw=0.05, cancel_task=0.03)
DELAYED = Chances(loss=0.01, delay=0.7)


class SchedulerWorld:
    """Runs a program on an engine. ``events`` and ``answers`` record the exchange."""

    def __init__(
        self,
        program: Program,
        configuration: Configuration,
        engine: Engine,
        numbers: random.Random,
        chances: Chances,
        *,
        validates: bool = False,
    ) -> None:
        self.program = program
        self.configuration = configuration
        self.validates = validates
        self.engine = engine
        self.numbers = numbers
        self.chances = chances
        self.events: list[Event] = []
        self.answers: list[list[Instruction]] = []
        self.edges = ExpectedEdges(program.hazards)
        self.children = [SimulatedChild() for _ in program.kinds]
        self.memory: dict[int, object] = {}
        self.saved: dict[int, dict[int, object]] = {}
        self.address: dict[int, int] = {b: USER + b * 4096 for b in range(program.user_buffers)}
        self.plans: dict[int, Plan] = {}
        self.attempts: dict[int, int] = {}
        self.begun: dict[int, set[int]] = {}
        """For each task, the attempts in which a member has begun."""
        self.seen: dict[int, dict[int, object]] = {}
        self.ended: set[int] = set()
        """Tasks that the engine reported as finished, or that succeeded without a report yet."""
        self.succeeded: dict[int, int] = {}
        self.results: dict[int, Result] = {}
        self.finished: RunFinished | None = None
        self.is_cancelled = False
        self.deadlock: Deadlock | None = None
        self.doomed: dict[int, int] = {}
        self.delayed: set[int] = set()
        """The tasks that wait for a Resume."""

    def run(self) -> None:
        """Run the program to its end. A submit that is in a deadlock ends it early."""
        self.handle(RunBegin(self.program.hazards))
        depth = 0
        # The probability of one more step of the children before the next submit.
        eagerness = self.numbers.choice([0.2, 0.6, 0.95])
        for step in self.program.steps:
            while self.numbers.random() < eagerness:
                self.advance()
            if isinstance(step, Begin | End):
                depth += 1 if isinstance(step, Begin) else -1
                self.handle(ScopeBegin() if isinstance(step, Begin) else ScopeEnd())
            elif not self._submit(step):
                break
        for _ in range(depth):
            self.handle(ScopeEnd())
        self.handle(RunEnd())
        while self.finished is None:
            expect(self.advance(), "nothing can happen and the run has not finished")

    def handle(self, event: Event) -> list[Instruction]:
        """Report an event to the engine, and carry out its instructions."""
        self.events.append(event)
        answer = list(self.engine.handle(event))
        self.answers.append(answer)
        if self.validates:
            self.engine.validate()
        for instruction in answer:
            self._follow(instruction)
        return answer

    def _follow(self, instruction: Instruction) -> None:
        match instruction:
            case Send(child, count, task):
                self._expect_child(child, f"task {task} is sent to child {child}")
                simulated = self.children[child]
                expect(simulated.is_alive, f"task {task} is sent to child {child}, which is lost")
                expected = len(simulated.outcomes) + len(simulated.queue) + 1
                expect(count == expected, f"{instruction}: this is frame {expected} of the child")
                expect(task in self.plans, f"{instruction}: there is no such task")
                expect(task not in self.delayed, f"{instruction}: the task is delayed")
                self._expect_place(instruction)
                if instruction.member == 0:
                    self.attempts[task] = self.attempts.get(task, 0) + 1
                    self.succeeded[task] = 0
                simulated.queue.append(instruction)
                simulated.tasks.append(task)
            case SaveRegions(task):
                self.saved[task] = {self._at(cell): self.read(cell) for cell in self._inout(task)}
            case RestoreRegions(task):
                self.memory.update(self.saved[task])
            case DropRegions(task):
                del self.saved[task]
            case TaskFinished(task, result):
                expect(task not in self.results, f"task {task} finishes twice")
                self.results[task] = result
                self.ended.add(task)
                self.delayed.discard(task)
            case EndChild(child, cause):
                self._expect_child(child, f"the engine ends child {child}")
                self.doomed[child] = cause
            case RunFinished():
                self.finished = instruction
            case _:
                pass

    def _expect_child(self, child: int, what: str) -> None:
        count = len(self.children)
        expect(0 <= child < count, f"{what}; there are children 0 to {count - 1}")

    def _expect_place(self, sent: Send) -> None:
        """Require that a frame goes to a child of the right kind, or to the pinned child."""
        plan = self.plans[sent.task]
        kind = self.program.kinds[sent.child]
        expect(
            kind is plan.kind, f"{sent}: the task is for {plan.kind.name}, the child {kind.name}"
        )
        if plan.pins and not plan.is_hint:
            pin = plan.pins[sent.member]
            expect(pin == sent.child, f"{sent}: the task is pinned to child {pin}")

    def read(self, cell: Cell) -> object:
        """Return the value of a tile."""
        at = self._at(cell)
        return self.memory.get(at, ("fresh", *cell))

    def _inout(self, task: int) -> list[Cell]:
        views = self.plans[task].views()
        return [cell for view in views if view.tag is Tag.INOUT for cell in view.cells()]

    def _at(self, cell: Cell) -> int:
        return self.address[cell[0]] + cell[1] * TILE

    def _submit(self, plan: Plan) -> bool:
        """Submit, and wait for free space. Return False for a deadlock."""
        while True:
            answer = self.handle(self._event(plan))
            expect(answer, f"no answer to the submit of task {plan.number}")
            if not isinstance(answer[0], Blocked):
                break
            self.deadlock = self.engine.deadlock()
            if self.deadlock is not None:
                expect(
                    not any(child.queue for child in self.children) and not self.delayed,
                    f"the engine reports a deadlock while tasks can run: {self.deadlock}",
                )
                return False
            expect(self.advance(), f"{answer[0]} cannot end, but the engine proves no deadlock")
        submitted = answer[0]
        if not isinstance(submitted, Submitted) or submitted.task != plan.number:
            raise ContractError(f"the answer to the submit of task {plan.number} is {submitted}")
        self.plans[plan.number] = plan
        self.edges.add(plan)
        fresh = [view for view in plan.views() if view.is_new]
        if plan.tiles:
            fresh = [View(plan.buffer, 0, plan.tiles, Tag.OUTPUT)]
            self.ended.add(plan.number)
        for view, address in zip(fresh, submitted.addresses, strict=True):
            self.address[view.buffer] = address
            for cell in view.cells():
                self.memory[self._at(cell)] = ("fresh", *cell)
        return True

    def _event(self, plan: Plan) -> Submit | Allocate:
        if plan.tiles:
            return Allocate(plan.tiles * TILE)
        members = tuple(
            Member(tuple(self._tensor(view) for view in member)) for member in plan.members
        )
        return Submit(
            plan.kind,
            members=members,
            pins=plan.pins,
            is_hint=plan.is_hint,
            retries=plan.retries,
            after=plan.after,
        )

    def _tensor(self, view: View) -> Tensor:
        address = 0 if view.is_new else self._at((view.buffer, view.low))
        return Tensor(address, (view.high - view.low) * TILE, view.tag)

    def advance(self) -> bool:
        """Perform one possible step; return False if none is possible."""
        before = len(self.answers)
        self.handle(Dispatch())
        self._mishap()
        has_changed = any(self.answers[before:]) or len(self.answers) > before + 1
        moves: list[tuple[Callable[[int], None], int]] = []
        for number, child in enumerate(self.children):
            if child.is_alive:
                if child.reported < len(child.outcomes):
                    moves.append((self._report, number))
                if child.queue and (child.inputs is not None or self._can_start(child)):
                    moves.append((self._step, number))
            elif child.returns or 0 < self.chances.join > self.numbers.random():
                moves.append((self._start_child, number))
        moves += [(self._resume, task) for task in sorted(self.delayed)]
        if not moves:
            return has_changed
        move, number = self.numbers.choice(moves)
        move(number)
        return True

    def _mishap(self) -> None:
        for number, cause in sorted(self.doomed.items()):
            self._lose(number, cause)
        self.doomed.clear()
        number = self.numbers.randrange(len(self.children))
        child = self.children[number]
        if self.numbers.random() < self.chances.loss and (child.is_alive or child.returns):
            self._lose(number, 1000 + number)
        elif self.numbers.random() < self.chances.deadline and child.is_alive and child.queue:
            self.handle(Deadline(number, child.queue[0].count, 2000 + number))
        elif self.numbers.random() < self.chances.cancel:
            self.is_cancelled = True
            self.handle(Cancel(3000))
        elif self.numbers.random() < self.chances.withdraw and child.is_alive:
            singles = [one for one in child.unbegun() if len(self.plans[one.task].members) == 1]
            if singles:
                self._withdraw(number, self.numbers.choice(singles))
        elif self.numbers.random() < self.chances.cancel_task and self.plans:
            self._cancel_task(self.numbers.choice(sorted(self.plans)))

    def _withdraw(self, number: int, frame: Send, *, is_certain: bool = False) -> None:
        child = self.children[number]
        self.handle(Withdraw(number, frame.count))
        child.asked.add(frame.count)
        if is_certain or self.numbers.random() < 0.7:
            child.withdrawn.add(frame.count)
            self.attempts[frame.task] -= 1
            self.handle(Withdrawn(number, frame.count))

    def _cancel_task(self, task: int) -> None:
        for number, child in enumerate(self.children):
            for frame in child.unbegun():
                if frame.task == task and len(self.plans[task].members) == 1:
                    self._withdraw(number, frame, is_certain=True)
        self.handle(CancelTask(task, 4000))

    def _resume(self, task: int) -> None:
        self.delayed.remove(task)
        self.handle(Resume(task))

    def _start_child(self, number: int) -> None:
        self.children[number].is_alive = True
        self.handle(ChildReady(number))

    def _lose(self, number: int, cause: int) -> None:
        child = self.children[number]
        if not child.is_alive and not child.returns:
            return
        while child.reported < len(child.outcomes):
            self._report(number)
        started = len(child.outcomes)
        if child.inputs is not None:
            self._spoil(child.queue[0])
            started += 1
        child.outcomes += [Outcome.FAILED] * len(child.queue)
        child.reported = len(child.outcomes)
        child.queue.clear()
        child.inputs = None
        child.is_alive = False
        child.returns = self.numbers.random() < 0.8
        self.handle(ChildLost(number, cause, started, child.returns))

    def _can_start(self, child: SimulatedChild) -> bool:
        required = child.queue[0].requirement
        if child.queue[0].count in child.withdrawn:
            return True
        return required is None or len(self.children[required.child].outcomes) >= required.count

    def _step(self, number: int) -> None:
        """Start the first frame of the queue, or end it."""
        child = self.children[number]
        frame = child.queue[0]
        if child.inputs is None:
            is_skipped = frame.count in child.withdrawn
            if frame.count in child.asked and not is_skipped and self.numbers.random() < 0.5:
                is_skipped = True
                self.attempts[frame.task] -= 1
            if is_skipped:
                child.queue.popleft()
                child.outcomes.append(Outcome.SKIPPED)
                return
            required = frame.requirement
            if required is not None:
                outcome = self.children[required.child].outcomes[required.count - 1]
                if outcome is not Outcome.SUCCEEDED:
                    self.attempts[frame.task] -= 1
                    child.queue.popleft()
                    child.outcomes.append(Outcome.SKIPPED)
                    return
            self._expect_may_start(frame)
            self.begun.setdefault(frame.task, set()).add(self.attempts[frame.task])
            member = self.plans[frame.task].members[frame.member]
            child.inputs = tuple(self.read(cell) for cell in read_cells(member))
            return
        self._end(child, frame)

    def _expect_may_start(self, frame: Send) -> None:
        waits_for = self.edges.order[frame.task] - self.ended
        expect(not waits_for, f"task {frame.task} starts before {sorted(waits_for)} have ended")

    def _end(self, child: SimulatedChild, frame: Send) -> None:
        plan = self.plans[frame.task]
        assert child.inputs is not None
        if self.attempts[frame.task] <= plan.failures and frame.member == 0:
            self._spoil(frame)
            child.outcomes.append(Outcome.FAILED)
        else:
            member = plan.members[frame.member]
            for cell, content in written(plan.number, frame.member, member, child.inputs):
                self.memory[self._at(cell)] = content
            self.seen.setdefault(frame.task, {})[frame.member] = child.inputs
            child.outcomes.append(Outcome.SUCCEEDED)
            self.succeeded[frame.task] += 1
            if self.succeeded[frame.task] == len(plan.members):
                self.ended.add(frame.task)
        child.queue.popleft()
        child.inputs = None

    def _spoil(self, frame: Send) -> None:
        """Write invalid values to the outputs of a frame, because a failed member may do so."""
        member = self.plans[frame.task].members[frame.member]
        for cell, _ in written(0, 0, member, ()):
            self.memory[self._at(cell)] = ("spoiled", frame.task)

    def _report(self, number: int) -> None:
        """Report one completion, or several at once if all but the last succeeded."""
        child = self.children[number]
        count = child.reported + 1
        while (
            child.outcomes[count - 1] is Outcome.SUCCEEDED
            and count < len(child.outcomes)
            and self.numbers.random() < 0.7
        ):
            count += 1
        outcome = child.outcomes[count - 1]
        child.reported = count
        cause = 100 + number if outcome is Outcome.FAILED else -1
        delay = self.chances.delay
        if outcome is Outcome.FAILED and delay > 0 and self.numbers.random() < delay:
            self.delayed.add(child.tasks[count - 1])
            self.handle(Delay(child.tasks[count - 1]))
        self.handle(Completion(number, count, outcome, cause))


def configuration_of(
    program: Program, *, ring_size: int, window: int, repeats_lost: bool
) -> Configuration:
    """Return the configuration of an engine for the program, with heap rings of one size."""
    return Configuration(
        tuple(ChildConfiguration(kind, window) for kind in program.kinds),
        tuple(RingConfiguration(HEAP + ring * RING_DISTANCE, ring_size) for ring in range(4)),
        repeats_lost,
    )


# ---- a finished run against the edges and values that its program is expected to produce ----


def expect_end(world: SchedulerWorld) -> None:
    """Require that each task has ended once, and that the engine has no task at the end."""
    run = _finished(world)
    count = len(world.plans)
    expect(run.tasks == count, f"the run counts {run.tasks} tasks, but {count} were submitted")
    ended = set(world.results)
    expected = {number for number, plan in world.plans.items() if plan.members}
    expect(ended == expected, f"tasks that did not end, or are unknown: {sorted(ended ^ expected)}")
    for numbers, result in ((run.failed, Result.FAILED), (run.poisoned, Result.POISONED)):
        listed = {task for task, _ in numbers}
        told = {number for number, found in world.results.items() if found is result}
        expect(listed == told, f"{result.name}: the run lists {listed}, the engine reported {told}")
    snapshot = world.engine.snapshot()
    expect(snapshot["tasks"] == {}, f"tasks are left after the run: {snapshot['tasks']}")
    scopes = [run["scopes"] for run in snapshot["runs"]]
    expect(not any(scopes), f"scopes are left after the run: {scopes}")
    used = [ring["used"] for ring in snapshot["rings"]]
    expect(not any(used), f"bytes are left in the heap rings: {used}")
    expect(not world.saved, f"saved regions of the tasks {sorted(world.saved)} are left")


def expect_poison(world: SchedulerWorld) -> None:
    """Require that exactly the descendants of failed tasks were poisoned."""
    run = _finished(world)
    failed = {task for task, _ in run.failed}
    poisoned = {task for task, _ in run.poisoned}
    expected = world.edges.poisoned(_plans(world), failed)
    expect(
        poisoned == expected, f"the failures of {failed} poisoned {poisoned}, expected {expected}"
    )
    for task, root in run.poisoned:
        expect(root in failed, f"task {task} was poisoned by {root}, which did not fail")


def expect_values(world: SchedulerWorld) -> None:
    """Check that each task read the values of a sequential run, and the final memory has them."""
    plans = _plans(world)
    spoiled = {n for n, result in world.results.items() if result is not Result.COMPLETED}
    memory, seen = sequential(plans, spoiled)
    for plan in plans:
        if plan.members and plan.number not in spoiled:
            found = world.seen[plan.number]
            values = tuple(found.get(member) for member in range(len(plan.members)))
            expect(
                values == seen[plan.number],
                f"task {plan.number} read other values than a sequential run",
            )
    for cell, content in memory.items():
        if cell[0] < world.program.user_buffers and content is not None:
            expect(world.read(cell) == content, f"tile {cell} has a wrong value after the run")


def expect_retries(world: SchedulerWorld) -> None:
    """Require that a task fails only after its last retry, or if no child can run it."""
    if not world.configuration.repeats_lost:
        return
    for event, answer in zip(world.events, world.answers, strict=True):
        for each in answer:
            if not isinstance(each, TaskFinished) or isinstance(event, Dispatch):
                continue
            began, retries = len(world.begun.get(each.task, ())), world.plans[each.task].retries
            expect(
                each.result is not Result.FAILED or began > retries,
                f"task {each.task} failed after {began} attempts; it has {retries} retries",
            )


def expect_failures(world: SchedulerWorld) -> None:
    """Require that a task has failed if and only if it had more failing attempts than retries."""
    run = _finished(world)
    failed = {task for task, _ in run.failed}
    expected = {n for n, plan in world.plans.items() if plan.failures > plan.retries}
    expected -= {task for task, _ in run.poisoned}
    expect(failed == expected, f"the tasks {failed} failed, expected {expected}")


def expect_cancel(world: SchedulerWorld) -> None:
    """Require that nothing was sent after the run was cancelled."""
    is_cancelled = False
    for event, answer in zip(world.events, world.answers, strict=True):
        is_cancelled = is_cancelled or isinstance(event, Cancel)
        sent = [each for each in answer if isinstance(each, Send)]
        expect(not (is_cancelled and sent), f"after the run was cancelled: {sent}")


def _finished(world: SchedulerWorld) -> RunFinished:
    if world.finished is None:
        raise ContractError("the run has not finished")
    return world.finished


def _plans(world: SchedulerWorld) -> list[Plan]:
    return [world.plans[number] for number in sorted(world.plans)]
