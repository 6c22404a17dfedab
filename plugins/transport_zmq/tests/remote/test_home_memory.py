"""The content that the relay sends before a frame, and the results that it accepts."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from pto_core import DataType, TensorArgType
from pto_core.errors import ProtocolError
from pto_transport_zmq.remote.address_space import (
    PIECE_BYTES,
    Access,
    AddressSpace,
    Range,
    accesses_of,
    pieces_of,
)
from pto_transport_zmq.remote.memory import HomeMemory, Result, digest_of, whole

BASE = 4 * PIECE_BYTES
PIECES, OLD = 6, 200
INPUT, OUTPUT, INOUT = TensorArgType.INPUT, TensorArgType.OUTPUT, TensorArgType.INOUT


class Rig:
    def __init__(self, quota: int = 1 << 40) -> None:
        self.content = np.full(PIECES * PIECE_BYTES, OLD, np.uint8)
        space = AddressSpace([(BASE, memoryview(self.content))])
        self.home = HomeMemory(space, quota)
        self.frames = 0

    def admit(self, *accesses: Access) -> tuple[int, list[Range] | None, list[int]]:
        self.frames += 1
        admitted = self.home.admit(self.frames, accesses)
        if admitted is None:
            return self.frames, None, []
        pushed = [self.home.content(piece).place for piece in admitted.stale]
        return self.frames, pushed, list(admitted.evicted)

    def pushed(self, *accesses: Access) -> list[Range] | None:
        """Return the ranges that are sent for a frame; end the frame at once, without results."""
        frame, pushes, _ = self.admit(*accesses)
        if pushes is not None:
            self.home.finish(frame)
        return pushes


def at(start: int, nbytes: int, tag: TensorArgType = INPUT, *, is_new: bool = False) -> Access:
    return Access(Range(BASE + start, BASE + start + nbytes), tag, is_new)


def test_an_unchanged_input_is_sent_once_and_a_changed_byte_as_one_piece() -> None:
    rig = Rig()
    everything = at(10, 3 * PIECE_BYTES)
    assert rig.pushed(everything) == list(pieces_of(everything.place))
    assert rig.pushed(everything) == []
    rig.content[PIECE_BYTES + 5] = 1
    assert rig.pushed(everything) == [Range(BASE + PIECE_BYTES, BASE + 2 * PIECE_BYTES)]


def test_the_known_content_is_the_sent_one_also_if_a_neighbour_is_written_meanwhile() -> None:
    rig = Rig()
    admitted = rig.home.admit(1, [at(0, 4)])
    assert admitted is not None
    rig.content[0] = 9
    assert rig.home.content(admitted.stale[0]).content == bytes([9, OLD, OLD, OLD])
    rig.home.finish(1)
    assert rig.pushed(at(0, 4)) == []


def test_content_before_an_address_is_not_sent() -> None:
    rig = Rig()
    assert rig.pushed(at(100, 8)) == [Range(BASE + 100, BASE + 108)]


@pytest.mark.parametrize("tag", [OUTPUT, INOUT, TensorArgType.OUTPUT_EXISTING])
def test_memory_that_a_task_may_write_partly_is_sent_first(tag: TensorArgType) -> None:
    assert Rig().pushed(at(0, 8, tag)) == [Range(BASE, BASE + 8)]


def test_new_memory_is_not_sent_and_its_reader_follows_at_once() -> None:
    rig = Rig()
    _, pushes, _ = rig.admit(at(0, 64, OUTPUT, is_new=True))
    assert pushes == []
    _, pushes, _ = rig.admit(at(8, 80))
    assert pushes == [Range(BASE + 64, BASE + 88)]


def test_a_frame_waits_where_a_frame_in_flight_may_write_what_changed_at_home() -> None:
    rig = Rig()
    first, _, _ = rig.admit(at(0, 64, INOUT))
    assert rig.pushed(at(0, 64)) == []
    rig.content[3] = 1
    assert rig.admit(at(0, 64))[1] is None
    rig.home.finish(first)
    assert rig.pushed(at(0, 64)) == [Range(BASE, BASE + 64)]


def test_a_failed_frame_makes_its_outputs_unknown() -> None:
    rig = Rig()
    frame, _, _ = rig.admit(at(0, 64, INOUT), at(64, 64))
    rig.home.drop(frame)
    assert rig.pushed(at(0, 64)) == [Range(BASE, BASE + 64)]
    assert rig.pushed(at(64, 64)) == []


def test_results_are_written_and_known() -> None:
    rig = Rig()
    frame, _, _ = rig.admit(at(8, 4, INOUT))
    content = memoryview(b"abcd")
    place = Range(BASE + 8, BASE + 12)
    rig.home.write(frame, Result(place, whole(content), digest_of(content)))
    rig.home.finish(frame)
    assert rig.content[6:14].tobytes() == bytes([OLD] * 2 + [*b"abcd"] + [OLD] * 2)
    assert rig.pushed(at(8, 4)) == []


@pytest.mark.parametrize(
    "place",
    [
        Range(BASE + 8, BASE + 13),
        Range(BASE + 7, BASE + 12),
        Range(BASE + 64, BASE + 68),
        Range(0, 4),
    ],
)
def test_a_result_outside_of_the_written_ranges_is_refused(place: Range) -> None:
    rig = Rig()
    frame, _, _ = rig.admit(at(8, 4, INOUT), at(64, 4))
    content = memoryview(bytes([7]) * place.nbytes)
    with pytest.raises(ProtocolError, match="may not write"):
        rig.home.write(frame, Result(place, whole(content), digest_of(content)))
    assert (rig.content == OLD).all()


def test_blocks_above_the_quota_are_evicted_but_not_those_in_use() -> None:
    rig = Rig(quota=2 * PIECE_BYTES)
    block = BASE // PIECE_BYTES
    first, _, evicted = rig.admit(at(0, 8))
    assert evicted == []
    assert rig.pushed(at(PIECE_BYTES, 8)) is not None
    third, _, evicted = rig.admit(at(2 * PIECE_BYTES, 8))
    assert evicted == [block + 1]
    rig.home.finish(first)
    assert rig.admit(at(3 * PIECE_BYTES, 8))[2] == [block]
    rig.home.finish(third)
    assert rig.pushed(at(0, 8)) == [Range(BASE, BASE + 8)]


def test_memory_that_was_never_written_is_not_sent() -> None:
    rig = Rig(quota=2 * PIECE_BYTES)
    rig.content[:] = 0
    rig.content[PIECE_BYTES + 100] = 1
    last = Range(BASE + PIECE_BYTES, BASE + 2 * PIECE_BYTES)
    assert rig.pushed(at(0, 2 * PIECE_BYTES, OUTPUT)) == [last]
    assert rig.pushed(at(0, 2 * PIECE_BYTES)) == []
    rig.content[0] = 1
    assert rig.pushed(at(0, 8)) == [Range(BASE, BASE + 8)]
    frame, _, _ = rig.admit(at(0, 2 * PIECE_BYTES, INOUT))
    rig.home.drop(frame)  # now the shadow may have content that is not zero
    rig.content[:] = 0
    assert rig.pushed(at(0, 8)) == [Range(BASE, BASE + 8)]
    assert rig.pushed(at(2 * PIECE_BYTES, 2 * PIECE_BYTES)) == []
    assert rig.pushed(at(0, 8)) == []  # the block was evicted, so the shadow is zero again


def test_a_frame_waits_if_the_frames_in_flight_would_exceed_the_quota() -> None:
    rig = Rig(quota=2 * PIECE_BYTES)
    # larger than the quota, but permitted, because it is the only frame
    large, pushes, _ = rig.admit(at(0, 3 * PIECE_BYTES))
    assert pushes is not None
    small, pushes, _ = rig.admit(at(0, 8))
    assert pushes is not None  # it uses a block of the first frame, so it needs no more memory
    rig.home.finish(small)
    assert rig.admit(at(3 * PIECE_BYTES, 8))[1] is None
    rig.home.finish(large)
    frame, pushes, _ = rig.admit(at(3 * PIECE_BYTES, 2 * PIECE_BYTES))
    assert pushes is not None
    assert rig.admit(at(0, 8))[1] is None
    rig.home.finish(frame)
    assert rig.admit(at(0, 8))[1] is not None


@pytest.mark.parametrize("start", [-1, PIECES * PIECE_BYTES - 4, -BASE, 1 << 40])
@pytest.mark.parametrize("is_new", [False, True])
def test_memory_that_is_not_shared_is_refused(start: int, is_new: bool) -> None:
    with pytest.raises(ProtocolError, match="not inside the memory"):
        Rig().admit(at(start, 8, OUTPUT, is_new=is_new))


def tensor(
    address: int, shape: tuple[int, ...], dtype: DataType, marks: int, child_memory: int = 0
) -> bytes:
    """Return one tensor in the layout of ``pto/abi/arguments.h``."""
    extents = [*shape, *[0] * (5 - len(shape))]
    return struct.pack("<Q6IBBB5x", address, *extents, len(shape), dtype, child_memory, marks)


def blob_of(*tensors: bytes, scalars: bytes = b"") -> bytes:
    return struct.pack("<ii", len(tensors), len(scalars) // 8) + b"".join(tensors) + scalars


def test_accesses_have_range_tag_and_origin() -> None:
    blob = blob_of(
        tensor(BASE, (3, 5), DataType.FLOAT32, 1),
        tensor(BASE + 64, (), DataType.FLOAT64, 2 + 8),
        tensor(BASE + 80, (0, 4), DataType.INT8, 1),
        tensor(BASE, (8,), DataType.INT8, 1, child_memory=1),
        scalars=bytes(16),
    )
    assert accesses_of(blob) == [at(0, 60), at(64, 8, OUTPUT, is_new=True)]
    for length in range(len(blob)):
        with pytest.raises(ProtocolError):
            accesses_of(blob[:length])


@pytest.mark.parametrize(
    "invalid",
    [
        tensor(BASE, (4,), DataType.INT8, 0),
        tensor(BASE, (4,), DataType.INT8, 6),
        tensor(BASE, (1 << 31,) * 5, DataType.INT8, 1),
        tensor((1 << 63) - 1, (4,), DataType.INT8, 1),
        tensor(BASE, (4,), DataType.INT8, 1).replace(b"\x04\x00\x01", b"\x99\x00\x01"),
    ],
)
def test_an_invalid_tensor_is_refused(invalid: bytes) -> None:
    with pytest.raises(ProtocolError, match="tensor 0 of a task"):
        accesses_of(blob_of(invalid))
