"""Failures, poison, retries, and lost children."""

from __future__ import annotations

import pytest
from engine_rig import FAILED, SKIPPED, SUB, Rig, ignores, reads, updates, writes

from pto_core.errors import ProtocolError
from pto_devkit.engine.interface import (
    Cancel,
    ChildLost,
    ChildReady,
    Deadline,
    Dispatch,
    DropRegions,
    EndChild,
    Hazards,
    Member,
    RestoreRegions,
    Result,
    RunBegin,
    RunEnd,
    RunFinished,
    SaveRegions,
    ScopeBegin,
    ScopeEnd,
    Send,
    Submit,
    TaskFinished,
)

pytestmark = pytest.mark.usefixtures("each_engine")

X = 0x10000
Y = 0x20000


def test_a_failure_poisons_exactly_the_descendants():
    rig = Rig(2)
    failing = rig.submit(writes(X))
    child = rig.submit(reads(X), writes(Y), pins=(1,))
    grandchild = rig.submit(reads(Y), pins=(1,))
    sibling = rig.submit(ignores(X), pins=(0,))
    rig.dispatch()
    rig.complete(0, 1, FAILED, 42)
    rig.complete(1, 1, SKIPPED)
    rig.complete(1, 2, SKIPPED)
    assert rig.complete(0, 2) == [TaskFinished(sibling, Result.COMPLETED)]
    late = rig.submit(reads(Y))
    rig.submit(after=(failing,))
    (finished,) = [each for each in rig.handle(RunEnd()) if isinstance(each, RunFinished)]
    assert finished.failed == ((failing, 42),)
    assert [task for task, _ in finished.poisoned] == [child, grandchild, late, late + 1]
    assert {root for _, root in finished.poisoned} == {failing}


def test_poison_outlives_the_slot_and_ends_where_it_is_overwritten():
    rig = Rig(1)
    rig.handle(ScopeBegin())
    failing = rig.submit(writes(X))
    rig.dispatch()
    rig.complete(0, 1, FAILED, 1)
    rig.handle(ScopeEnd())
    assert rig.state(failing) == "gone"
    answer = rig.handle(Submit(SUB, (Member((reads(X),)),)))
    assert answer[1:] == [TaskFinished(failing + 1, Result.POISONED, root=failing)]
    rig.submit(writes(X))
    assert rig.state(rig.submit(reads(X))) == "PENDING"


def test_an_edge_that_only_orders_passes_no_failure_on():
    rig = Rig(2, hazards=Hazards.FULL)
    reader = rig.submit(reads(X), pins=(0,))
    writer = rig.submit(writes(X), pins=(1,))
    assert rig.waits_for(writer) == [reader]
    rig.dispatch()
    rig.complete(0, 1, FAILED, 1)
    assert rig.state(writer) == "READY"


def test_a_poisoned_task_ends_after_all_its_producers():
    """The last task overwrites the poisoned task's output, so it waits for all its producers."""
    rig = Rig(2, hazards=Hazards.FULL)
    failing = rig.submit(writes(X), pins=(0,))
    slow = rig.submit(writes(Y), pins=(1,))
    poisoned = rig.submit(reads(X), writes(Y))
    last = rig.submit(writes(Y))
    rig.dispatch()
    rig.complete(0, 1, FAILED, 1)
    assert rig.state(failing) == "FAILED"
    assert (rig.state(poisoned), rig.state(last)) == ("PENDING", "PENDING")
    rig.complete(1, 1)
    assert (rig.state(slow), rig.state(poisoned), rig.state(last)) == ("gone", "gone", "READY")


def test_a_group_fails_when_all_its_members_have_ended():
    rig = Rig(2)
    group = rig.submit(members=(Member(), Member()))
    rig.dispatch()
    assert rig.complete(1, 1, FAILED, 8) == []
    assert rig.state(group) == "RUNNING"
    assert rig.complete(0, 1, FAILED, 9) == [TaskFinished(group, Result.FAILED, 8)]


def test_failures_are_reported_in_the_order_of_their_arrival():
    rig = Rig(2)
    for child in range(2):
        rig.submit(pins=(child,))
    rig.dispatch()
    rig.complete(1, 1, FAILED, 11)
    rig.complete(0, 1, FAILED, 10)
    assert rig.handle(RunEnd())[-1] == RunFinished(2, ((1, 11), (0, 10)))
    rig.handle(RunBegin())
    assert rig.handle(RunEnd()) == [RunFinished(0)]


def test_a_retry_starts_from_the_restored_content():
    rig = Rig(1)
    task = rig.submit(updates(X), retries=1)
    assert rig.handle(Dispatch()) == [SaveRegions(task), Send(0, 1, task, 0)]
    assert rig.complete(0, 1, FAILED, 1) == []
    assert rig.handle(Dispatch()) == [RestoreRegions(task), Send(0, 2, task, 0)]
    finished = TaskFinished(task, Result.FAILED, 2)
    assert rig.complete(0, 2, FAILED, 2) == [finished, DropRegions(task)]


def test_a_group_is_retried_as_a_whole():
    rig = Rig(2)
    group = rig.submit(members=(Member(), Member()), retries=1)
    rig.dispatch()
    rig.complete(0, 1, FAILED, 1)
    rig.complete(1, 1)
    assert [send.member for send in rig.dispatch()] == [0, 1]
    rig.complete(0, 2)
    assert rig.complete(1, 2)[0] == TaskFinished(group, Result.COMPLETED)


def test_tasks_lost_with_a_child_fail_with_that_cause():
    rig = Rig(2)
    tasks = [rig.submit(pins=(0,)) for _ in range(2)]
    other = rig.submit(pins=(1,))
    rig.dispatch()
    lost = rig.handle(ChildLost(0, 77, 1))
    assert lost == [TaskFinished(task, Result.FAILED, 77) for task in tasks]
    assert rig.state(other) == "RUNNING"


def test_with_repeats_tasks_that_had_not_begun_run_on_another_child():
    rig = Rig(2, repeats_lost=True)
    started, queued = rig.submit(pins=(0,), is_hint=True), rig.submit(pins=(0,), is_hint=True)
    rig.dispatch()
    assert rig.handle(ChildLost(0, 77, 1)) == [TaskFinished(started, Result.FAILED, 77)]
    assert [(send.child, send.task) for send in rig.dispatch()] == [(1, queued)]


def test_with_repeats_tasks_that_are_safe_to_repeat_run_again_even_if_begun():
    rig = Rig(1, repeats_lost=True)
    task = rig.submit(retries=1)
    rig.dispatch()
    rig.handle(ChildLost(0, 77, 1, returns=True))
    assert rig.dispatch() == []
    assert not rig.engine.is_quiescent()
    rig.handle(ChildReady(0))
    assert rig.dispatch() == [Send(0, 2, task, 0)], "frame 1 did not count as completed"
    assert rig.handle(ChildLost(0, 78, 2)) == [TaskFinished(task, Result.FAILED, 78)]


def test_with_repeats_the_oldest_frame_is_sent_again_if_it_had_not_begun():
    rig = Rig(1, repeats_lost=True)
    plain, safe = rig.submit(updates(X)), rig.submit(retries=1)
    rig.dispatch()
    assert rig.handle(ChildLost(0, 77, 0, returns=True)) == []
    assert (rig.task(plain)["attempts"], rig.task(safe)["attempts"]) == (0, 1)
    rig.handle(ChildReady(0))
    assert [(send.task, send.count) for send in rig.dispatch()] == [(plain, 3), (safe, 4)]
    rig.complete(0, 3)
    assert rig.complete(0, 4) == [TaskFinished(safe, Result.COMPLETED)]


def test_without_repeats_tasks_that_had_not_begun_fail_too():
    rig = Rig(1)
    task = rig.submit(retries=3)
    rig.dispatch()
    assert rig.handle(ChildLost(0, 77, 0)) == [TaskFinished(task, Result.FAILED, 77)]


def test_a_task_that_was_sent_early_and_had_not_begun_is_sent_again():
    rig = Rig(2, repeats_lost=True)
    producer, reader = rig.submit(writes(X), pins=(0,)), rig.submit(reads(X), pins=(1,))
    rig.dispatch()
    assert rig.handle(ChildLost(1, 77, 0, returns=True)) == []
    assert rig.state(reader) == "PENDING"
    assert rig.complete(0, 1) == [TaskFinished(producer, Result.COMPLETED)]
    rig.handle(ChildReady(1))
    assert [(send.task, send.count) for send in rig.dispatch()] == [(reader, 2)]


def test_a_retry_of_a_group_that_had_not_begun_uses_no_other_retry():
    rig = Rig(2, repeats_lost=True)
    group = rig.submit(members=(Member(), Member()), retries=1)
    rig.dispatch()
    rig.complete(0, 1, FAILED, 1)
    rig.complete(1, 1)
    rig.dispatch()
    for child in range(2):
        assert rig.handle(ChildLost(child, 77, 1, returns=True)) == []
    assert (rig.state(group), rig.task(group)["attempts"]) == ("READY", 0)


@pytest.mark.parametrize("retries", [0, 2])
def test_a_group_is_repeated_if_no_member_had_begun(retries):
    rig = Rig(2, repeats_lost=True)
    group = rig.submit(members=(Member(), Member()), retries=retries)
    rig.dispatch()
    for child in range(2):
        assert rig.handle(ChildLost(child, 77, 0, returns=True)) == []
    assert (rig.state(group), rig.task(group)["attempts"]) == ("READY", retries)


@pytest.mark.parametrize("is_lost", [True, False])
def test_a_group_with_a_begun_member_uses_a_retry(is_lost):
    rig = Rig(2, repeats_lost=True)
    group = rig.submit(members=(Member(), Member()), retries=1)
    for retries_left in (1, 0):
        assert rig.task(group)["attempts"] == retries_left
        (_, second) = rig.dispatch()
        assert rig.handle(ChildLost(0, 77, second.count - 1, returns=True)) == []
        if is_lost:
            finished = rig.handle(ChildLost(1, 78, second.count, returns=True))
            rig.handle(ChildReady(1))
        else:
            finished = rig.complete(1, second.count)
        rig.handle(ChildReady(0))
    assert finished == [TaskFinished(group, Result.FAILED, 77)]


@pytest.mark.parametrize("started", [0, 3])
def test_a_lost_child_reports_which_frames_may_have_begun(started):
    rig = Rig(1)
    for _ in range(2):
        rig.submit()
    rig.dispatch()
    rig.complete(0, 1)
    with pytest.raises(ProtocolError, match=f"{started} frames begun; 1 have completed and 2 were"):
        rig.handle(ChildLost(0, 1, started))
    rig.handle(ChildLost(0, 1, 1))


def test_a_frame_that_required_a_lost_one_waits_for_its_producer_again():
    rig = Rig(2, repeats_lost=True)
    rig.submit(pins=(0,))
    producer = rig.submit(writes(X), pins=(0,), is_hint=True)
    reader = rig.submit(reads(X), pins=(1,))
    rig.dispatch()
    rig.handle(ChildLost(0, 77, 1))
    with pytest.raises(ProtocolError):
        rig.complete(1, 1)
    rig.complete(1, 1, SKIPPED)
    assert (rig.state(producer), rig.state(reader)) == ("READY", "PENDING")
    assert [(send.task, send.count) for send in rig.dispatch()] == [(producer, 2), (reader, 3)]
    # The skip of the first attempt does not affect the second attempt.
    assert rig.complete(1, 2) == [TaskFinished(producer, Result.COMPLETED)]
    assert rig.complete(1, 3) == [TaskFinished(reader, Result.COMPLETED)]


def test_a_task_for_which_no_child_is_left_fails():
    rig = Rig(2)
    rig.handle(ChildLost(1, 55, 0))
    pinned = rig.submit(pins=(1,))
    group = rig.submit(members=(Member(), Member()))
    anyone = rig.submit()
    assert rig.handle(Dispatch()) == [
        TaskFinished(group, Result.FAILED, 55),
        TaskFinished(pinned, Result.FAILED, 55),
        Send(0, 1, anyone, 0),
    ]


def test_a_child_past_a_deadline_is_ended_and_the_task_fails_with_it():
    rig = Rig(1)
    task, later = rig.submit(timeout_ms=5), rig.submit()
    rig.dispatch()
    assert rig.handle(Deadline(0, 1, 66)) == [EndChild(0, 66)]
    assert rig.handle(Deadline(0, 1, 67)) == [], "once is enough"
    assert rig.handle(ChildLost(0, 9, 1)) == [
        TaskFinished(task, Result.FAILED, 66),
        TaskFinished(later, Result.FAILED, 9),
    ]


def test_a_deadline_of_a_completed_frame_does_nothing():
    rig = Rig(1)
    rig.submit()
    rig.dispatch()
    rig.complete(0, 1)
    assert rig.handle(Deadline(0, 1, 66)) == []
    with pytest.raises(ProtocolError):
        rig.handle(Deadline(0, 2, 66))


def test_a_cancelled_run_ends_tasks_that_were_not_sent():
    rig = Rig(1, window=1)
    running, waiting = rig.submit(writes(X), retries=1), rig.submit()
    reader = rig.submit(reads(X))
    rig.dispatch()
    assert rig.handle(Cancel(5)) == [TaskFinished(waiting, Result.POISONED, 5)]
    late = rig.submit()
    rig.handle(RunEnd())
    finished = rig.complete(0, 1, FAILED, 6)
    assert finished == [
        TaskFinished(running, Result.FAILED, 6),
        TaskFinished(reader, Result.POISONED, -1, running),
        RunFinished(4, ((running, 6),), ((waiting, -1), (late, -1), (reader, running))),
    ]


def test_children_report_in_an_order_that_can_be():
    rig = Rig(1)
    with pytest.raises(ProtocolError, match="ready already"):
        rig.handle(ChildReady(0))
    rig.handle(ChildLost(0, 1, 0))
    with pytest.raises(ProtocolError, match="lost already"):
        rig.handle(ChildLost(0, 1, 0))
    rig.handle(Submit(SUB))
    assert rig.engine.is_quiescent() is False


def test_a_child_that_was_lost_for_good_can_become_ready():
    rig = Rig(2, repeats_lost=True)
    pinned, free = rig.submit(pins=(0,)), rig.submit()
    rig.handle(ChildLost(1, 7, 0))
    rig.handle(ChildLost(0, 5, 0))
    rig.handle(ChildReady(1))
    answer = rig.handle(Dispatch())
    assert answer == [TaskFinished(pinned, Result.FAILED, 5), Send(1, 1, free, 0)]
    rig.handle(ChildLost(1, 8, 0))
    rig.handle(ChildReady(0))
    assert rig.dispatch() == [Send(0, 1, free, 0)]


def test_a_task_without_a_child_fails_with_the_cause_of_the_last_loss():
    rig = Rig(3)
    for child, cause in ((2, 3), (0, 9), (1, 4)):
        rig.handle(ChildLost(child, cause, 0))
    task, group = rig.submit(), rig.submit(members=(Member(), Member()))
    assert rig.handle(Dispatch()) == [
        TaskFinished(group, Result.FAILED, 9),
        TaskFinished(task, Result.FAILED, 9),
    ]
