"""Shared memory that a Worker did not create, such as that of ``share_memory_()``."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from task_arguments import given

from pto_core import Out, TaskArgs, TensorArgType, Worker, task
from pto_core.errors import UsageError

PAGE = mmap.PAGESIZE
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
MAP_FIXED_NOREPLACE = 0x100000


@task
def write(out: Out) -> None:
    out[:] = 7


def fill(args: Any) -> None:
    args.tensor(0)[:] = 7


def shared() -> np.ndarray[Any, Any]:
    return np.frombuffer(mmap.mmap(-1, PAGE), np.float32)


def outputs(array: Any) -> TaskArgs:
    return given((array, TensorArgType.OUTPUT_EXISTING))


def by_session(worker: Worker, handle: Any, array: Any) -> None:
    with worker.session() as s:
        s.submit(write, array)


def by_submit(worker: Worker, handle: Any, array: Any) -> None:
    worker.run(lambda orch, args, cfg: orch.submit_sub(handle, outputs(array)))


def by_group(worker: Worker, handle: Any, array: Any) -> None:
    worker.run(lambda orch, args, cfg: orch.submit_sub_group(handle, [outputs(array)]))


def by_submit_many(worker: Worker, handle: Any, array: Any) -> None:
    parts = outputs(array.reshape(2, -1))
    worker.run(lambda orch, args, cfg: orch.submit_sub_many(handle, parts))


def by_replay(worker: Worker, handle: Any, array: Any) -> None:
    own = worker.shared_array(array.shape)
    captured = worker.capture(
        lambda orch, args, cfg: orch.submit_sub(
            handle, given((args.tensors[0], TensorArgType.OUTPUT_EXISTING))
        ),
        outputs(own),
    )
    worker.replay(captured, outputs(array))


WAYS = [by_session, by_submit, by_group, by_submit_many, by_replay]
Way = Callable[[Worker, Any, Any], None]


def test_forked_children_have_only_the_mappings_from_before_the_start(make) -> None:
    """Memory that was mapped later is refused at the submit."""
    before = [shared() for _ in WAYS]
    worker = make(num_sub_workers=1)
    handle = worker.register(fill)
    worker.init()
    own = worker.shared_array(8)
    for way, array in zip(WAYS, before, strict=True):
        way(worker, handle, array)
        assert (array == 7).all()
        late = shared()
        for _ in range(2):
            with pytest.raises(UsageError, match=r"mapped after the Worker started.*shared_array"):
                way(worker, handle, late)
            assert not late.any()
            own[:] = 0
            way(worker, handle, own)
            assert (own == 7).all()


class Mapping:
    """Shared memory that can be replaced by other shared memory at the same address.

    The address is far below those that the kernel chooses, so no other thread maps memory there.
    """

    def __init__(self, number: int) -> None:
        self.address = 0x3000_0000_0000 + 16 * number * PAGE
        self._map()

    @property
    def array(self) -> Any:
        content = (ctypes.c_float * (PAGE // 4)).from_address(self.address)
        return np.ctypeslib.as_array(content)

    def replace(self) -> None:
        self.unmap()
        self._map()

    def unmap(self) -> None:
        libc.munmap(self.address, PAGE)

    def _map(self) -> None:
        protection = mmap.PROT_READ | mmap.PROT_WRITE
        flags = mmap.MAP_SHARED | mmap.MAP_ANONYMOUS | MAP_FIXED_NOREPLACE
        assert libc.mmap(self.address, PAGE, protection, flags, -1, 0) == self.address


@pytest.mark.parametrize("is_used_before", [True, False])
def test_other_memory_at_the_address_of_memory_that_children_have_is_refused(
    make, is_used_before: bool
) -> None:
    mappings = [Mapping(number) for number in range(len(WAYS))]
    worker = make(num_sub_workers=1)
    handle, own = worker.register(fill), worker.shared_array(8)
    worker.init()
    for way, mapping in zip(WAYS, mappings, strict=True):
        way(worker, handle, mapping.array if is_used_before else own)
        mapping.replace()
        with pytest.raises(UsageError, match="mapped after the Worker started"):
            way(worker, handle, mapping.array)
        assert not mapping.array.any()
        mapping.unmap()
        with pytest.raises(UsageError, match="this process has no memory at this address"):
            way(worker, handle, mapping.array)


def test_arrays_of_another_worker_that_is_made_later_are_refused(make) -> None:
    first, second = make(num_sub_workers=1), make(num_sub_workers=1)
    handle = first.register(fill)
    first.init()
    with pytest.raises(UsageError, match="mapped after the Worker started"):
        by_submit(first, handle, second.shared_array(8))


@pytest.mark.parametrize("way", [by_session, by_submit])
def test_spawned_children_have_arrays_of_their_worker_only(make, way: Way) -> None:
    array, other = shared(), make().shared_array(8)
    worker = make(num_sub_workers=1, start_method="spawn")
    handle, own = worker.register(fill), worker.shared_array(8)
    worker.init()
    way(worker, handle, own)
    assert (own == 7).all()
    for foreign in (array, other):
        with pytest.raises(UsageError, match=r"start_method='spawn' do not have.*shared_array"):
            way(worker, handle, foreign)
    late = worker.shared_array(8)
    way(worker, handle, late)
    assert (late == 7).all()
