"""Functions go to another interpreter as bytes and do there what they do here."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest

from pto_core.hierarchy.serialisation import deserialised, import_path, imported, serialised

OFFSET = 5


def factorial(n: int) -> int:
    return 1 if n < 2 else n * factorial(n - 1)


def adder(amount: int) -> Callable[[int], int]:
    def add(value: int) -> int:
        return value + amount + OFFSET

    return add


def even_and_odd() -> tuple[Callable[[int], bool], Callable[[int], bool]]:
    def is_even(n: int) -> bool:
        return n == 0 or is_odd(n - 1)

    def is_odd(n: int) -> bool:
        return n != 0 and is_even(n - 1)

    return is_even, is_odd


def in_another_process(function: Callable[..., object], argument: int) -> str:
    program = (
        "import sys; from pto_core.hierarchy.serialisation import deserialised; "
        "print(deserialised(sys.stdin.buffer.read())(int(sys.argv[1])))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(argument)],
        input=serialised(function),
        capture_output=True,
        check=True,
    )
    return done.stdout.decode().strip()


@pytest.mark.parametrize(
    ("function", "argument", "result"),
    [
        (lambda n: math.isqrt(n) + OFFSET, 49, "12"),
        (lambda n: int(np.arange(n).sum()), 5, "10"),
        (adder(30), 7, "42"),
        (even_and_odd()[0], 10, "True"),
        (lambda n, *, step=2: [n + step for step in range(step)], 4, "[4, 5]"),
    ],
    ids=["global names", "module", "closure", "each other", "defaults"],
)
def test_a_function_runs_in_another_process(
    function: Callable[..., object], argument: int, result: str
) -> None:
    assert in_another_process(function, argument) == result


def test_a_recursive_local_function_comes_back() -> None:
    def count(n: int) -> int:
        return 0 if n == 0 else 1 + count(n - 1)

    assert deserialised(serialised(count))(9) == 9


def test_equal_functions_have_equal_bytes_and_others_do_not() -> None:
    assert serialised(adder(1)) == serialised(adder(1))
    assert serialised(adder(1)) != serialised(adder(2))


def test_what_an_import_finds_goes_by_name() -> None:
    assert deserialised(serialised(math.sqrt)) is math.sqrt
    assert import_path(factorial) == f"{__name__}:factorial"
    assert imported(f"{__name__}:factorial") is factorial
    assert import_path(adder(1)) is None


def test_what_does_not_pickle_is_refused() -> None:
    stream = sys.stdout
    with pytest.raises(TypeError):
        serialised(lambda: stream.fileno())
