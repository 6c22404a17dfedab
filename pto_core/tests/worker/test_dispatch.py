"""Dispatch: the child of each task, early sending, and the order."""

from __future__ import annotations

import pytest
from engine_rig import FAILED, SKIPPED, Rig, reads, updates, writes

from pto_core.errors import ProtocolError
from pto_devkit.engine.interface import Hazards, Kind, Member, Requirement, Send

pytestmark = pytest.mark.usefixtures("each_engine")

X = 0x10000


def test_the_least_loaded_child_with_free_space_is_picked():
    rig = Rig(3, window=2)
    tasks = [rig.submit() for _ in range(8)]
    sends = rig.dispatch()
    assert [(send.child, send.count, send.task) for send in sends] == [
        *((child, 1, tasks[child]) for child in range(3)),
        *((child, 2, tasks[3 + child]) for child in range(3)),
    ]
    assert rig.dispatch() == []
    rig.complete(1, 1)
    assert [(send.child, send.task) for send in rig.dispatch()] == [(1, tasks[6])]


def test_another_policy_can_be_passed():
    rig = Rig(3, policy=lambda candidates, preferred: candidates[-1][0])
    rig.submit()
    assert rig.dispatch()[0].child == 2


def test_among_equals_the_child_of_the_last_producer_is_preferred():
    rig = Rig(3, hazards=Hazards.FULL)
    rig.submit(writes(X), pins=(2,))
    rig.submit(writes(X))  # the edge only orders the tasks, so the task is not sent early
    assert [send.child for send in rig.dispatch()] == [2]
    rig.complete(2, 1)
    assert [send.child for send in rig.dispatch()] == [2]


def test_pins_are_mandatory_and_hints_are_not():
    rig = Rig(2, window=1)
    rig.submit(pins=(1,))
    pinned = rig.submit(pins=(1,))
    hinted = rig.submit(pins=(1,), is_hint=True)
    assert [(send.child, send.task) for send in rig.dispatch()][1:] == [(0, hinted)]
    rig.complete(1, 1)
    assert [(send.child, send.task) for send in rig.dispatch()] == [(1, pinned)]


def test_kinds_go_to_their_children():
    rig = Rig(kinds=(Kind.SUB, Kind.NEXT_LEVEL))
    rig.submit(kind=Kind.NEXT_LEVEL)
    rig.submit()
    assert [send.child for send in rig.dispatch()] == [1, 0]


def test_a_chain_is_sent_early_with_its_requirements():
    rig = Rig(2)
    chain = [rig.submit(updates(X)) for _ in range(3)]
    assert rig.dispatch() == [
        Send(0, 1, chain[0], 0),
        Send(0, 2, chain[1], 0, Requirement(0, 1)),
        Send(0, 3, chain[2], 0, Requirement(0, 2)),
    ]


def test_a_pinned_chain_alternates_between_children():
    rig = Rig(2)
    for place in range(3):
        rig.submit(updates(X), pins=(place % 2,))
    sends = rig.dispatch()
    assert [(send.child, send.requirement) for send in sends] == [
        (0, None),
        (1, Requirement(0, 1)),
        (0, Requirement(1, 1)),
    ]


def test_a_child_may_report_before_the_child_that_it_required():
    rig = Rig(2)
    one, two = rig.submit(writes(X), pins=(0,)), rig.submit(reads(X), pins=(1,))
    rig.dispatch()
    assert rig.complete(1, 1) == []
    assert rig.state(two) == "RUNNING"
    finished = rig.complete(0, 1)
    assert [each.task for each in finished] == [one, two]
    assert not rig.engine.snapshot()["queues"]["singles"]


def test_only_one_consumer_follows_a_producer_to_its_child():
    """The other consumers are distributed over the children when they are ready."""
    rig = Rig(2)
    rig.submit(writes(X))
    readers = [rig.submit(reads(X)) for _ in range(3)]
    assert [send.task for send in rig.dispatch()][1:] == readers[:1]


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda rig: rig.submit(writes(X), retries=1), id="past retries"),
        pytest.param(
            lambda rig: rig.submit(members=(Member((writes(X),)), Member())), id="past a group"
        ),
    ],
)
def test_no_task_is_sent_early_behind_a_task_that_cannot_be_required(make):
    rig = Rig(2)
    make(rig)
    reader = rig.submit(reads(X))
    assert reader not in [send.task for send in rig.dispatch()]


def test_neither_groups_nor_tasks_that_wait_for_two_are_sent_early():
    rig = Rig(2)
    rig.submit(writes(X))
    group = rig.submit(members=(Member((reads(X),)), Member((reads(X),))))
    rig.submit(writes(X + 64))
    both = rig.submit(reads(X, 128))
    sent = [send.task for send in rig.dispatch()]
    assert group not in sent
    assert both not in sent


def test_the_members_of_a_group_are_sent_together_to_distinct_children():
    rig = Rig(3, window=1)
    rig.submit(pins=(1,))
    rig.dispatch()
    group = rig.submit(members=(Member(),) * 3)
    single = rig.submit()
    assert rig.dispatch() == [], "the single task got a child that the group needs"
    rig.complete(1, 1)
    sends = rig.dispatch()
    assert [(send.task, send.member) for send in sends] == [(group, 0), (group, 1), (group, 2)]
    assert {send.child for send in sends} == {0, 1, 2}
    rig.complete(2, 1)
    assert [(send.child, send.task) for send in rig.dispatch()] == [(2, single)]
    rig.complete(0, 1)
    assert rig.state(group) == "RUNNING"
    rig.complete(1, 2)
    assert rig.state(group) == "gone", "a task without memory leaves the engine when it has ended"


def order_of_all(rig: Rig) -> list[int]:
    """Dispatch until no task is left, and complete each task at once; return the tasks in order."""
    order: list[int] = []
    while sends := rig.dispatch():
        order += [send.task for send in sends if send.member == 0]
        for send in sends:
            rig.complete(send.child, send.count)
    return order


def test_sixty_four_groups_pass_each_single_task_that_waits():
    rig = Rig(2, window=1)
    singles = [rig.submit(), rig.submit()]
    groups = [rig.submit(members=(Member(), Member())) for _ in range(130)]
    order = order_of_all(rig)
    assert [order.index(single) for single in singles] == [64, 64 + 1 + 64]
    assert [task for task in order if task not in singles] == groups


def test_groups_that_passed_no_single_task_do_not_count():
    rig = Rig(2, window=1)
    groups = [rig.submit(members=(Member(), Member())) for _ in range(70)]
    assert order_of_all(rig) == groups
    single = rig.submit()
    group = rig.submit(members=(Member(), Member()))
    assert order_of_all(rig) == [group, single]


@pytest.mark.parametrize(
    ("child", "count", "outcome", "message"),
    [
        (0, 3, None, "2 were sent"),
        (0, 0, None, "reports frame 0"),
        (5, 1, None, "child 5 does not exist"),
        (0, 1, SKIPPED, "requirement None has not failed"),
        (1, 1, None, "0 were sent"),
    ],
)
def test_impossible_reports_change_nothing(child, count, outcome, message):
    rig = Rig(2)
    rig.submit(writes(X))
    rig.submit(reads(X))
    rig.dispatch()
    before = rig.engine.snapshot()
    with pytest.raises(ProtocolError, match=message):
        rig.complete(child, count, *([] if outcome is None else [outcome]))
    assert rig.engine.snapshot() == before


def test_a_frame_whose_requirement_failed_cannot_have_run():
    rig = Rig(1)
    rig.submit(writes(X))
    rig.submit(reads(X))
    rig.dispatch()
    rig.complete(0, 1, FAILED, 5)
    with pytest.raises(ProtocolError, match="whose requirement"):
        rig.complete(0, 2)
    rig.complete(0, 2, SKIPPED)
