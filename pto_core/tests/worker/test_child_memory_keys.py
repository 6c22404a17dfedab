"""Memory of a child orders tasks by (child, address), separate from all other memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from engine_rig import HEAP, Rig, overwrites, reads, updates, writes

from pto_core.errors import UsageError
from pto_devkit.abi import Tag
from pto_devkit.engine.interface import NONE, Box, Hazards, Tensor

pytestmark = pytest.mark.usefixtures("each_engine")

X = 0x10000
MEMORIES = (0, 1, NONE)


def whole(tensor: Tensor) -> Tensor:
    return tensor


def column(tensor: Tensor) -> Tensor:
    return replace(tensor, nbytes=16, box=Box(X, 4, (4, 4), (0, 0), (1, 4)))


def key(tensor: Tensor) -> Tensor:
    return replace(tensor, nbytes=0)


# Invariant: The dependency key of child memory is (child, address). Memories of different children
# with equal addresses do not overlap.
@pytest.mark.parametrize("shape", [whole, column, key])
@pytest.mark.parametrize("hazards", list(Hazards))
def test_a_writer_hides_the_writers_of_its_own_memory_alone(
    hazards: Hazards, shape: Callable[[Tensor], Tensor]
) -> None:
    rig = Rig(hazards=hazards)
    writers = {child: rig.submit(replace(shape(overwrites(X)), child=child)) for child in MEMORIES}
    readers = {child: rig.submit(replace(shape(reads(X)), child=child)) for child in MEMORIES}
    for child in MEMORIES:
        assert rig.waits_for(writers[child]) == []
        assert rig.waits_for(readers[child]) == [writers[child]]


@pytest.mark.parametrize("first", MEMORIES)
def test_a_writer_waits_for_the_readers_of_its_own_memory_alone(first: int) -> None:
    rig = Rig(hazards=Hazards.FULL)
    reader = rig.submit(replace(reads(X), child=first))
    for child in (child for child in MEMORIES if child != first):
        assert rig.waits_for(rig.submit(replace(updates(X), child=child))) == []
    assert rig.waits_for(rig.submit(replace(writes(X), child=first))) == [reader]


def test_memory_of_a_child_at_an_address_of_a_heap_ring_has_no_owner() -> None:
    rig = Rig()
    owner, address = rig.alloc(1024)
    rig.submit(replace(reads(address), child=0))
    rig.submit(replace(reads(HEAP + 512 * 1024), child=1))
    assert rig.task(owner)["references"]["OWNER"] == 0


@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        (Tensor(X, 8, Tag.INPUT, child=2), "memory of child 2, which does not exist; use 0 to 1"),
        (Tensor((1 << 48) - 4, 8, Tag.INPUT, child=0), "child 0 that ends at 0x1000000000004"),
        (Tensor(0, 8, Tag.OUTPUT, child=1), "OUTPUT tensor of a child's memory without"),
    ],
)
def test_memory_that_no_child_has_is_refused(tensor: Tensor, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Rig().submit(tensor)
