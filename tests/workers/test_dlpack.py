"""Tensors of other libraries, which a Worker accepts through DLPack.

Small exporters replace other libraries, so that these tests need none. test_torch.py has the tests
with torch, in a stage of CI.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from task_arguments import given

from pto_core import ContinuousTensor, In, Out, TensorArgType, task
from pto_core.errors import UsageError


class Exported:
    """A tensor of another library over the memory of an array."""

    def __init__(self, array: Any) -> None:
        self._array = array

    def __dlpack__(self, **keywords: Any) -> Any:
        return self._array.__dlpack__(**keywords)

    def __dlpack_device__(self) -> Any:
        return self._array.__dlpack_device__()


class Elsewhere(Exported):
    """An exporter that claims a tensor in the memory of an accelerator."""

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, 0)


@task
def double(x: In, out: Out) -> None:
    np.multiply(x, 2, out=out)


def test_children_read_and_write_the_memory_itself(make) -> None:
    worker = make(num_sub_workers=2)
    for dtype in ("float32", "float64", "int8", "int64"):
        x, out = worker.shared_array((2, 3, 5), dtype)
        x[:] = np.arange(15).reshape(3, 5)
        with worker.session() as s:
            s.submit(double, Exported(x), Exported(out))
            s.submit(double, Exported(out), Exported(x))
        np.testing.assert_array_equal(x, 4 * np.arange(15).reshape(3, 5))


def test_its_regions_order_tasks_with_those_of_arrays(make) -> None:
    worker = make(num_sub_workers=2)
    rows = worker.shared_array((20, 64), "int64")
    rows[0] = 1
    with worker.session() as s:
        for index in range(19):
            source, target = rows[index], rows[index + 1]
            s.submit(double, *((Exported(source), target), (source, Exported(target)))[index % 2])
    assert (rows[-1] == 2**19).all()


def test_published_calls_accept_it(make) -> None:
    worker = make(num_sub_workers=1)
    x = worker.shared_array((8,), "float32")
    handle = worker.register(lambda args: args.tensor(0).fill(3))
    tensor = ContinuousTensor.from_array(Exported(x))
    args = given((Exported(x), TensorArgType.OUTPUT), (tensor, TensorArgType.NO_DEP))
    worker.run(lambda orch, a, cfg: orch.submit_sub(handle, args))
    assert (x == 3).all()


def test_memory_that_children_cannot_see_is_refused_at_the_submit(make) -> None:
    worker = make(num_sub_workers=1)
    out = worker.shared_array((8,), "float64")
    with worker.session() as s:
        with pytest.raises(UsageError, match="shared_array"):
            s.submit(double, Exported(np.zeros(8)), out)
        with pytest.raises(UsageError, match=r"device|memory"):
            s.submit(double, Elsewhere(np.zeros(8)), out)
        s.submit(double, out, out)
