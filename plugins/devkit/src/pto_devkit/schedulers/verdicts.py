"""Compare a finished run with the edges and values that its program is expected to produce."""

from __future__ import annotations

from pto_devkit.engine.events import Cancel, Dispatch
from pto_devkit.engine.instructions import Result, RunFinished, Send, TaskFinished
from pto_devkit.failure import ContractError, expect
from pto_devkit.schedulers.programs import Plan, sequential
from pto_devkit.schedulers.world import World


def expect_end(world: World) -> None:
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
    expect(snapshot["scopes"] == [], f"scopes are left after the run: {snapshot['scopes']}")
    used = [ring["used"] for ring in snapshot["rings"]]
    expect(not any(used), f"bytes are left in the heap rings: {used}")
    expect(not world.saved, f"saved regions of the tasks {sorted(world.saved)} are left")


def expect_poison(world: World) -> None:
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


def expect_values(world: World) -> None:
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


def expect_retries(world: World) -> None:
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


def expect_failures(world: World) -> None:
    """Require that a task has failed if and only if it had more failing attempts than retries."""
    run = _finished(world)
    failed = {task for task, _ in run.failed}
    expected = {n for n, plan in world.plans.items() if plan.failures > plan.retries}
    expected -= {task for task, _ in run.poisoned}
    expect(failed == expected, f"the tasks {failed} failed, expected {expected}")


def expect_cancel(world: World) -> None:
    """Require that nothing was sent after the run was cancelled."""
    is_cancelled = False
    for event, answer in zip(world.events, world.answers, strict=True):
        is_cancelled = is_cancelled or isinstance(event, Cancel)
        sent = [each for each in answer if isinstance(each, Send)]
        expect(not (is_cancelled and sent), f"after the run was cancelled: {sent}")


def _finished(world: World) -> RunFinished:
    if world.finished is None:
        raise ContractError("the run has not finished")
    return world.finished


def _plans(world: World) -> list[Plan]:
    return [world.plans[number] for number in sorted(world.plans)]
