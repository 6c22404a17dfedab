"""Typed tasks: the arguments of their submit, and the call in the child."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator
from typing import Annotated, Any

import cloudpickle
import numpy as np
import pytest

from pto_core import ChipCallable, DataType, Direction, In, InOut, NoDep, Out, OutExisting, Scalar
from pto_core._worker import TaskArgs, TensorArgType
from pto_core.errors import UsageError
from pto_core.worker.memory import SharedArena
from pto_core.worker.tasks import ChipTask, Task, task

SEEN: list[Any] = []


@task
def every_way(
    x: In, factor: Scalar, y: Out, z: InOut, e: OutExisting, n: NoDep, flag: Scalar = False
) -> None:
    SEEN[:] = [x, factor, y, z, e, n, flag]


@task(retries=2)
def numbers(*values: Scalar) -> None:
    SEEN[:] = values


@task
def nothing() -> None:
    SEEN[:] = ["nothing"]


@task
def untyped(x) -> None: ...


@pytest.fixture
def shared() -> Iterator[Callable[[tuple[int, ...], float], Any]]:
    """Make arrays as a child would see them."""
    arena = SharedArena(capacity=1 << 20)

    def make(shape: tuple[int, ...], fill: float) -> Any:
        array = arena.array(shape)
        array[:] = fill
        return array

    yield make
    arena.close()


def arrays(count: int) -> list[np.ndarray]:
    return [np.full((2, 3), i, np.float32) for i in range(count)]


def test_the_annotations_determine_tags_and_outputs() -> None:
    x, y, z, e, n = arrays(5)
    args, written, _ = every_way.arguments([x, 2.5, y, z, e, n, True])
    assert args is not None
    assert [args.tag(i) for i in range(args.tensor_count)] == [
        TensorArgType.INPUT,
        TensorArgType.OUTPUT,
        TensorArgType.INOUT,
        TensorArgType.OUTPUT_EXISTING,
        TensorArgType.NO_DEP,
    ]
    assert [id(array) for array in written] == [id(y), id(z), id(e)]


def test_the_child_gets_arrays_and_numbers_in_the_order_of_the_call(shared: Any) -> None:
    x, y, z, e, n = (shared((2, 3), fill) for fill in range(5))
    args, _, _ = every_way.arguments([x, 2.5, y, z, e, n, True])
    assert args is not None
    every_way.run(args.view())
    found_x, factor, found_y, _, _, _, flag = SEEN
    assert (factor, flag) == (2.5, True)
    assert isinstance(flag, bool)
    np.testing.assert_array_equal(found_x, x)
    assert not found_x.flags.writeable, "an array that is declared In is writable"
    found_y[:] = 9
    assert (y == 9).all(), "the child got a copy of the memory"


@pytest.mark.parametrize("count", [1, 15, 16, 17, 32, 33])
def test_any_number_of_scalars_is_returned_unchanged(count: int) -> None:
    kinds = [7, -1, 2.5, True, 2**63 - 1, -(2**63), np.float32(1.5), np.int8(-3), False]
    values = [kinds[i % len(kinds)] for i in range(count)]
    args, written, _ = numbers.arguments(values)
    assert args is not None
    assert written == ()
    numbers.run(args.view())
    assert values == SEEN
    assert [isinstance(value, bool) for value in SEEN] == [isinstance(v, bool) for v in values]


def test_a_task_without_arguments_is_called_without() -> None:
    args, _, _ = nothing.arguments([])
    assert args is None
    nothing.run(TaskArgs().view())
    assert SEEN == ["nothing"]


def test_a_task_can_be_called_here() -> None:
    assert nothing() is None
    assert (numbers.retries, numbers.name, nothing.name) == (2, "numbers", "nothing")


@pytest.mark.parametrize("annotation", [In | None, list[Out], "In | None"])
def test_a_direction_inside_another_annotation_is_refused(annotation: Any) -> None:
    def add(x, y) -> None: ...

    add.__annotations__["y"] = annotation
    with pytest.raises(UsageError, match=r"y of add has the annotation .*; write In, Out.* alone"):
        task(add)
    add.__annotations__["y"] = Annotated[int | None, Scalar("int8")]
    assert task(add).signature.parameters[1] == ("y", Direction.SCALAR, DataType.INT8)


def test_a_task_is_pickled_by_name_and_by_cloudpickle_by_code() -> None:
    assert pickle.loads(pickle.dumps(numbers)) is numbers
    assert copy.deepcopy(numbers) is numbers

    @task(retries=3)
    def factorial(x):
        return x * factorial(x - 1) if x else 1

    with pytest.raises((AttributeError, pickle.PicklingError), match="local object"):
        pickle.dumps(factorial)
    other = cloudpickle.loads(cloudpickle.dumps(factorial))
    assert (other(4), other.retries, other is factorial) == (24, 3, False)


@pytest.mark.parametrize(
    ("submitted", "values", "message"),
    [
        (
            untyped,
            [np.zeros(3)],
            r"the @task untyped needs a process, a SUB child, and this Worker has none",
        ),
        (every_way, [np.zeros(3)], r"every_way takes 6 to 7 arguments \(x, factor, .*got 1"),
        (nothing, [1], r"nothing takes 0 arguments"),
        (numbers, [2**64], r"is 18446744073709551616 does not fit into 64 bits"),
    ],
)
def test_arguments_that_do_not_fit_the_signature_are_refused(
    submitted: Task, values: list[Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        submitted.arguments(values)


@pytest.mark.parametrize("bad", [-1, 1.5, True, "2"])
def test_retries_are_a_number(bad: Any) -> None:
    with pytest.raises(UsageError, match="retries is"):
        task(retries=bad)(lambda: None)


def on_chip(rt: Any, x: In, out: Out, factor: Scalar) -> None: ...


def test_a_chip_is_typed_by_its_signature() -> None:
    x, out = arrays(2)
    args, written = ChipTask(ChipCallable(on_chip)).arguments([x, out, 3])
    assert [args.tag(i) for i in range(2)] == [TensorArgType.INPUT, TensorArgType.OUTPUT]
    assert (args.scalar_count, args.view().scalars[0]) == (1, 3)
    assert [id(array) for array in written] == [id(out)]
    by_array = ChipCallable("library.so", signature=("in", "inout"))
    args, _ = ChipTask(by_array).arguments([x, out, 1.5, -1])
    assert [args.tag(i) for i in range(2)] == [TensorArgType.INPUT, TensorArgType.INOUT]
    assert list(args.view().scalars) == [0x3FF8000000000000, 2**64 - 1]
    args, _ = ChipTask(ChipCallable("library.so")).arguments([x])
    assert args.tag(0) == TensorArgType.INOUT, "an undeclared array is not INOUT"


def test_a_chip_task_has_all_its_arrays_before_its_scalars() -> None:
    x, out = arrays(2)
    with pytest.raises(UsageError, match="argument 2 of library is an array after a scalar"):
        ChipTask(ChipCallable("library.so")).arguments([x, 1, out])
    with pytest.raises(UsageError, match="on_chip takes 3 arguments, got 2"):
        ChipTask(ChipCallable(on_chip)).arguments([x, out])
