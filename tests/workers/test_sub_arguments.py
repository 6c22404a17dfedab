"""SUB functions receive arguments if their signature accepts one, and none otherwise."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable
from functools import partial
from typing import Any

from task_arguments import given

from pto_core import TensorArgType


class Marker:
    """A callable object that writes the number of its arguments' tensors into its own array."""

    def __init__(self, array: Any) -> None:
        self._array = array

    def __call__(self, args: Any) -> None:
        self._array[:] = args.tensor_count

    def method(self, args: Any) -> None:
        self(args)

    def without(self) -> None:
        self._array[:] = -1


def functions_of(array: Any) -> dict[str, tuple[Callable[..., Any], bool]]:
    """Return functions by name, and whether each one accepts an argument."""
    marker = Marker(array)

    def required(args: Any) -> None:
        marker(args)

    def optional(args: Any = None) -> None:
        marker(args)

    def variadic(*args: Any) -> None:
        marker(*args)

    def no_argument() -> None:
        marker.without()

    def only_keywords(*, factor: int = 2, **others: Any) -> None:
        marker.without()

    return {
        "required": (required, True),
        "optional": (optional, True),
        "variadic": (variadic, True),
        "callable object": (marker, True),
        "bound method": (marker.method, True),
        "no argument": (no_argument, False),
        "only keywords": (only_keywords, False),
        "bound method without": (marker.without, False),
        "filled partial": (partial(required, given().view()), False),
    }


def test_a_function_gets_arguments_if_it_accepts_one(make) -> None:
    worker = make(num_sub_workers=1)
    array, tensor = worker.shared_array(4), worker.shared_array(4)
    functions = functions_of(array)
    handles = {name: worker.register(function) for name, (function, _) in functions.items()}
    for (name, (_, accepts)), count in itertools.product(functions.items(), (None, 0, 1)):
        args = () if count is None else (given(*[(tensor, TensorArgType.INPUT)] * count),)
        array[:] = 9
        worker.run(lambda orch, *_, sub=handles[name], args=args: orch.submit_sub(sub, *args))
        expected = (count or 0) if accepts else 0 if name == "filled partial" else -1
        assert (array == expected).all(), (name, count)


def test_a_function_without_a_signature_gets_arguments(make) -> None:
    worker = make(num_sub_workers=1)
    array = worker.shared_array(4)
    handle = worker.register(operator.methodcaller("tensor", 0))
    worker.run(lambda orch, _, cfg: orch.submit_sub(handle, given((array, TensorArgType.INPUT))))


def test_empty_arguments_that_a_function_keeps_stay_empty(make) -> None:
    worker = make(num_sub_workers=1)
    array = worker.shared_array(4)
    kept: list[Any] = []

    def keep(args: Any) -> None:
        kept.append(args)
        array[:] = [one.tensor_count for one in kept] + [-1] * (4 - len(kept))

    handle = worker.register(keep)

    def graph(orch: Any, args: Any, config: Any) -> None:
        orch.submit_sub(handle)
        orch.submit_sub(handle, given((array, TensorArgType.INOUT)))
        orch.submit_sub(handle)

    worker.run(graph)
    assert array.tolist() == [0, 1, 0, -1]
