"""Views of device memory with other shapes and types, and copies into them."""

from __future__ import annotations

import numpy as np
import pytest

from pto_core import open_device
from pto_core.errors import UsageError


@pytest.fixture
def memory():
    with open_device("a2a3sim", runtime="host_build_graph") as device:
        array = device.empty(64, "uint8")
        array.from_host(np.arange(64, dtype=np.uint8))
        yield array
        array.free()


def test_a_part_is_seen_as_another_type_and_shape(memory) -> None:
    part = memory.view(8, (2, 3), "float32")
    assert (part.shape, part.dtype, part.address) == ((2, 3), np.float32, memory.address + 8)
    bytes_ = np.arange(64, dtype=np.uint8)[8:32]
    assert (part.to_host().view(np.uint8).reshape(-1) == bytes_).all()
    part[1].from_host(np.array([1, 2, 3], np.float32))
    assert part.to_host()[1].tolist() == [1, 2, 3]
    assert (memory.to_host()[32:] == np.arange(32, 64)).all()


def test_a_view_of_a_view_counts_from_there(memory) -> None:
    inner = memory.view(16, 4, "int32").view(4, 2, "int16")
    assert inner.address == memory.address + 20
    assert inner.to_host().view(np.uint8).tolist() == [20, 21, 22, 23]


@pytest.mark.parametrize(
    ("offset", "shape", "dtype", "message"),
    [
        (60, (2,), "int32", "does not fit a device array of 64 bytes"),
        (65, (0,), "uint8", "does not fit"),
        (2, (3,), "int32", "not a multiple of the 4 bytes"),
    ],
)
def test_an_invalid_view_is_refused(memory, offset, shape, dtype, message) -> None:
    with pytest.raises(UsageError, match=message):
        memory.view(offset, shape, dtype)


def test_a_copy_of_another_size_is_refused_and_copies_nothing(memory) -> None:
    with pytest.raises(UsageError, match="has 8 bytes, but the device array has 64"):
        memory.from_host(np.zeros(1))
    assert (memory.to_host() == np.arange(64)).all()


def test_a_copy_from_none_is_refused(memory) -> None:
    with pytest.raises(UsageError, match="None"):
        memory.from_host(None)


def test_views_of_freed_memory_are_refused(memory) -> None:
    part = memory.view(0, 4, "int32")
    memory.free()
    with pytest.raises(UsageError, match="freed"):
        part.from_host(np.zeros(4, np.int32))
    with pytest.raises(UsageError, match="freed"):
        memory.view(0, 4, "int32")
