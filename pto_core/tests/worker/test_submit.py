"""The dependencies, references and resources of a submit."""

from __future__ import annotations

import pytest
from engine_rig import (
    APART,
    HEAP,
    SUB,
    Rig,
    ignores,
    overwrites,
    reads,
    updates,
    writes,
)

from pto_core.errors import CapacityError, UsageError
from pto_devkit.abi import Tag
from pto_devkit.engine.interface import (
    Allocate,
    Blocked,
    Box,
    Event,
    Hazards,
    Kind,
    Member,
    RunBegin,
    RunEnd,
    RunFinished,
    ScopeBegin,
    ScopeEnd,
    SpaceFreed,
    Submit,
    Tensor,
)

pytestmark = pytest.mark.usefixtures("each_engine")

X = 0x10000
Y = 0x20000
FULL = Hazards.FULL


@pytest.mark.parametrize(
    ("first", "then", "raw", "full"),
    [
        (writes, reads, True, True),
        (writes, updates, True, True),
        (writes, writes, False, True),
        (writes, overwrites, False, False),
        (writes, ignores, False, False),
        (reads, reads, False, False),
        (reads, updates, False, True),
        (reads, writes, False, True),
        (reads, overwrites, False, False),
        (updates, reads, True, True),
        (overwrites, reads, True, True),
        (ignores, updates, False, False),
    ],
)
def test_the_table_of_tags(first, then, raw, full):
    for hazards, waits in ((Hazards.RAW, raw), (FULL, full)):
        rig = Rig(hazards=hazards)
        one, two = rig.submit(first(X)), rig.submit(then(X))
        assert rig.waits_for(two) == ([one] if waits else [])


def test_producers_are_counted_once_also_across_members():
    rig = Rig()
    one = rig.submit(writes(X, 128))
    two = rig.submit(members=(Member((reads(X), updates(X + 64))), Member((reads(X),))))
    assert rig.waits_for(two) == [one]
    assert rig.task(one)["references"] == {"SELF": 1, "SCOPE": 0, "CONSUMER": 1, "OWNER": 0}


def test_members_of_a_group_do_not_wait_for_each_other():
    rig = Rig()
    one = rig.submit(writes(X))
    two = rig.submit(members=(Member((writes(X),)), Member((reads(X),))))
    assert rig.waits_for(two) == [one]


def test_a_reader_waits_for_writers_that_no_single_later_writer_covers():
    rig = Rig()
    left, right = rig.submit(writes(X, 64)), rig.submit(writes(X + 64, 64))
    middle = rig.submit(writes(X + 32, 64))
    assert rig.waits_for(rig.submit(reads(X, 128))) == [left, right, middle]
    whole = rig.submit(writes(X, 128))
    assert rig.waits_for(rig.submit(reads(X + 60, 8))) == [whole]


def test_boxes_of_one_buffer_are_exact_and_of_different_shapes_by_hull():
    """The boxes are rows of an array of 8 x 4 elements; then the memory has the shape 16 x 2."""
    rig = Rig()

    def rows(low: int, extent: int, raw: tuple[int, int] = (8, 4)) -> Tensor:
        box = Box(X, 4, raw, (low, 0), (extent, raw[1]))
        return Tensor(X + 4 * low, 4 * extent * raw[1], Tag.OUTPUT, box)

    def as_input(tensor: Tensor) -> Tensor:
        return Tensor(tensor.address, tensor.nbytes, Tag.INPUT, tensor.box)

    left, right = rig.submit(rows(0, 4)), rig.submit(rows(4, 4))
    assert rig.waits_for(rig.submit(as_input(rows(2, 2)))) == [left]
    assert rig.waits_for(rig.submit(as_input(rows(3, 2)))) == [left, right]
    assert rig.engine.snapshot()["conservative_edges"] == 0
    assert rig.waits_for(rig.submit(as_input(rows(0, 1, (16, 2))))) == [left, right]
    assert rig.engine.snapshot()["conservative_edges"] == 2
    assert rig.waits_for(rig.submit(reads(X, 128))) == [left, right]
    assert rig.engine.snapshot()["conservative_edges"] == 2


def test_a_box_in_a_permuted_or_padded_shape_is_the_same_box():
    rig = Rig()
    one = rig.submit(Tensor(X, 32, Tag.OUTPUT, Box(X, 4, (4, 1, 4), (0, 0, 0), (2, 1, 4))))
    there = Tensor(X + 8, 16, Tag.INPUT, Box(X, 2, (8, 4), (4, 0), (4, 2)))
    assert rig.waits_for(rig.submit(there)) == []
    here = Tensor(X + 2, 4, Tag.INPUT, Box(X, 2, (8, 4), (1, 0), (1, 2)))
    assert rig.waits_for(rig.submit(here)) == [one]


def test_a_box_that_is_no_view_is_refused():
    rig = Rig()
    for box in (
        Box(X, 4, (4,), (2,), (3,)),
        Box(X, 4, (4, 4), (0,), (2, 2)),
        Box(X, 4, (4,), (1,), (2,)),
        Box(X, 4, (), (), ()),
    ):
        with pytest.raises(UsageError, match=r"not a view of its buffer|has a box of"):
            rig.submit(Tensor(X, 8, Tag.INPUT, box))


def test_a_tensor_without_an_address_may_be_ignored():
    rig = Rig()
    task = rig.submit(ignores(0))
    assert rig.waits_for(task) == []


def test_a_tensor_of_size_zero_is_a_key():
    rig = Rig()
    key = rig.submit(updates(X, 0))
    rig.submit(writes(X, 64))
    assert rig.waits_for(rig.submit(updates(X, 0))) == [key]
    assert rig.waits_for(rig.submit(reads(X + 1, 0))) == []
    first, second = rig.submitted(writes(0, 0)), rig.submitted(writes(0, 0))
    assert first.addresses != second.addresses
    assert rig.waits_for(rig.submit(reads(*first.addresses, 0))) == [first.task]
    assert all(ring["head"] == 0 for ring in rig.engine.snapshot()["rings"])


def test_outputs_of_a_submit_share_one_reservation_in_slabs():
    rig = Rig()
    one = rig.submitted(writes(0, 1), writes(0, 1025), writes(X), writes(0, 1024))
    assert one.addresses == (HEAP, HEAP + 1024, HEAP + 3072)
    assert rig.engine.snapshot()["rings"][0]["head"] == 4096


def test_rings_follow_the_depth_of_the_scope_up_to_the_fourth():
    rig = Rig()
    for depth in range(6):
        assert rig.alloc(1)[1] == HEAP + APART * min(depth, 3) + 1024 * max(depth - 3, 0)
        rig.handle(ScopeBegin())


def test_an_allocation_is_complete_and_a_task_that_names_it_owns_it():
    rig = Rig()
    rig.handle(ScopeBegin())
    buffer, address = rig.alloc(100)
    assert rig.state(buffer) == "COMPLETED"
    reader = rig.submit(updates(address, 100))
    writer = rig.submit(writes(address, 100))
    rig.submit(ignores(address, 100))
    assert rig.waits_for(reader) == rig.waits_for(writer) == []
    assert rig.task(buffer)["references"] == {"SELF": 0, "SCOPE": 1, "CONSUMER": 1, "OWNER": 2}
    rig.dispatch()
    rig.handle(ScopeEnd())
    assert rig.state(buffer) == "COMPLETED"
    rig.complete(0, 2)
    assert rig.state(buffer) == "COMPLETED"
    assert SpaceFreed(1) in rig.complete(1, 1)
    assert rig.state(buffer) == "gone"


def test_a_buffer_may_be_named_only_inside_its_scope():
    rig = Rig()
    rig.handle(ScopeBegin())
    _, address = rig.alloc(100)
    rig.submit(reads(address, 100))
    rig.handle(ScopeEnd())
    for tensor in (reads(address, 100), reads(HEAP + 5, 1), updates(HEAP - 8, 16)):
        with pytest.raises(UsageError, match="belong to no task of an open scope"):
            rig.submit(tensor)
    rig.submit(ignores(address, 100))


def test_slabs_are_freed_in_order_and_a_blocked_submit_changes_nothing():
    rig = Rig(ring_size=4096)
    rig.handle(ScopeBegin())
    first = rig.submitted(writes(0, 1024))
    rig.submit(writes(0, 2048))
    rig.handle(ScopeEnd())
    rig.handle(ScopeBegin())
    before = rig.engine.snapshot()
    request = Submit(SUB, (Member((writes(0, 2048),)),))
    assert rig.handle(request) == [Blocked(1, 2048, 3072, 4096)]
    assert rig.engine.snapshot() == before
    assert rig.engine.deadlock() is None
    rig.dispatch()
    rig.complete(1, 1)
    assert rig.handle(request) == [Blocked(1, 2048, 3072, 4096)]
    assert rig.complete(0, 1)[-1] == SpaceFreed(1)
    assert rig.state(first.task) == "gone"
    # The last 1024 bytes of the ring are too few, so they are skipped.
    assert rig.submitted(writes(0, 2048)).addresses == (HEAP + APART,)


def test_no_running_task_can_free_memory_of_an_open_scope():
    rig = Rig(ring_size=4096)
    held, _ = rig.alloc(3000)
    task = rig.submit()
    assert isinstance(rig.handle(Allocate(2000))[0], Blocked)
    assert rig.engine.deadlock() is None, "a ready task was reported as a deadlock"
    rig.dispatch()
    assert isinstance(rig.handle(Allocate(2000))[0], Blocked)
    assert rig.engine.deadlock() is None, f"deadlock reported although task {task} runs"
    rig.complete(0, 1)
    rig.handle(Allocate(2000))
    proof = rig.engine.deadlock()
    assert proof is not None
    assert (proof.ring, proof.requested, proof.held, proof.size) == (0, 2048, 3072, 4096)
    assert (proof.oldest_task, proof.open_scope, proof.needed) == (held, 0, 5120)
    assert proof.error().needed == 5120
    rig.submit()
    assert rig.engine.deadlock() is None


def test_more_than_a_whole_ring_is_refused_at_once():
    rig = Rig(ring_size=4096)
    with pytest.raises(CapacityError, match="set heap_ring_size to at least 5120"):
        rig.handle(Allocate(4097))


def test_a_task_waits_for_the_tasks_that_its_submit_names():
    rig = Rig()
    one = rig.submit()
    two = rig.submit(after=(one, one))
    assert rig.state(two) == "PENDING"
    assert rig.waits_for(two) == [one]
    assert rig.task(one)["references"]["CONSUMER"] == 0, "the edge keeps a buffer"
    assert rig.submit(after=()) == two + 1


@pytest.mark.parametrize("producer", [-1, 2, 17, 1 << 40])
def test_a_submit_names_earlier_tasks_of_its_run_alone(producer):
    rig = Rig()
    rig.submit()
    rig.submit()
    before = rig.engine.snapshot()
    with pytest.raises(UsageError, match=f"task {producer} is not an earlier task of this run"):
        rig.submit(after=(producer,))
    assert rig.engine.snapshot() == before


# Invariant: An event that the engine of Workers refuses leaves its state unchanged.
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"members": ()}, "without members"),
        ({"members": (Member(),) * 3}, "3 members for 2 SUB children"),
        ({"kind": Kind.NEXT_LEVEL}, "for NEXT_LEVEL children, but there are none; .*device_ids"),
        ({"pins": (7,)}, "worker 7 is not a SUB child"),
        ({"pins": (0, 1)}, "2 workers were passed for 1 members"),
        ({"members": (Member(),) * 2, "pins": (1, 1)}, "contain a child twice"),
        ({"retries": -1}, "pass 0 or more"),
        ({"members": (Member((Tensor(0, 4, Tag.INPUT),)),)}, "only OUTPUT is allocated"),
        ({"members": (Member((Tensor(1, -4, Tag.INPUT),)),)}, "are not a tensor"),
    ],
)
def test_an_invalid_submit_changes_nothing(options, message):
    rig = Rig()
    before = rig.engine.snapshot()
    with pytest.raises(UsageError, match=message):
        rig.submit(**options)
    assert rig.engine.snapshot() == before


@pytest.mark.parametrize("event", [Submit(SUB), Allocate(4), ScopeBegin(), ScopeEnd(), RunEnd()])
def test_events_outside_of_a_run_are_refused(event: Event) -> None:
    rig = Rig()
    assert rig.handle(RunEnd()) == [RunFinished(0)]
    with pytest.raises(UsageError, match="outside of a run"):
        rig.handle(event)


def test_runs_and_scopes_nest_as_they_should():
    rig = Rig()
    with pytest.raises(UsageError, match="another with other hazards is under way"):
        rig.handle(RunBegin(Hazards.FULL))
    with pytest.raises(UsageError, match="no scope is open"):
        rig.handle(ScopeEnd())
    rig.handle(ScopeBegin())
    with pytest.raises(UsageError, match="1 scopes open"):
        rig.handle(RunEnd())
