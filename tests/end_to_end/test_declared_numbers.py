"""Numbers of every kind reach parameters of every declared type, at levels 2 and 3.

The oracle computes with fractions. It shares nothing with the conversion: a number is an exact
fraction, inf or nan; a type is a range of integers, or a number of digits with a smallest exponent.
The random test prints its seed; the environment variable NUMBERS_SEED sets it.
"""

from __future__ import annotations

import ctypes
import enum
import itertools
import math
import os
import random
import struct
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any

import ml_dtypes
import numpy as np
import pytest

import pto_core
from pto_core import (
    ChipCallable,
    Hosts,
    InOut,
    Scalar,
    TaskArgs,
    TensorArgType,
    Worker,
    kernel,
    task,
)
from pto_core._native import declared_number
from pto_core.errors import TaskFailedError, UsageError
from pto_core.kernels import DataType, OrchestrationSource, Out

BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
BITS |= {"uint8": 8, "uint16": 16, "uint32": 32, "uint64": 64, "bool": 1}
REAL = {"float16": (11, -24, 16), "bfloat16": (8, -133, 128)}
REAL |= {"float32": (24, -149, 128), "float64": (53, -1074, 1024)}
TYPES = [*BITS, *REAL]
CPP = """
#include "runtime.h"
extern "C" int bits_of(Runtime*, uint64_t* args, int count) {
  for (int i = 1; i < count; ++i) reinterpret_cast<uint64_t*>(args[0])[i - 1] = args[i];
  return 0;
}
"""


class Level(enum.IntEnum):
    SEVEN = 7


class Large(int):
    pass


class Real(float):
    pass


class ZeroDimensional:
    """A tensor of another library with one element and no dimensions, as those of torch."""

    ndim = 0

    def __init__(self, value: Any) -> None:
        self.value = value

    def __dlpack__(self, **_: Any) -> Any:
        raise RuntimeError("it requires a gradient")

    def item(self) -> Any:
        return self.value


class Typed(ZeroDimensional):
    """The same with a ``dtype``, whose text has the name of its library before the type."""

    def __init__(self, value: Any, dtype: str) -> None:
        super().__init__(value)
        self.dtype = dtype


def fraction_of(value: Any) -> Fraction | float:
    """Return the exact value of a number: a fraction, inf or nan."""
    if isinstance(value, ZeroDimensional):
        value = value.value
    if isinstance(value, ctypes._SimpleCData):
        value = value.value
    if isinstance(value, np.ndarray | np.generic) and not isinstance(value, np.longdouble):
        value = value.item() if value.dtype.kind != "V" else float(value)
    if isinstance(value, np.longdouble):
        return Fraction(*value.as_integer_ratio()) if np.isfinite(value) else float(value)
    if isinstance(value, float) and not math.isfinite(value):
        return value
    return Fraction(value)


def expected(value: Any, type_name: str) -> Fraction | float | None:
    """Return the number of the type that is nearest to a value; None if there is none."""
    exact = fraction_of(value)
    if type_name in BITS:
        bits = BITS[type_name]
        least, most = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        if not type_name.startswith("int"):
            least, most = 0, 2**bits - 1
        is_integer = isinstance(exact, Fraction) and exact.denominator == 1
        return exact if is_integer and least <= exact <= most else None
    if isinstance(exact, float) or exact == 0:
        return exact
    digits, smallest, largest = REAL[type_name]
    exponent = abs(exact.numerator).bit_length() - exact.denominator.bit_length()
    exponent -= Fraction(2) ** exponent > abs(exact)
    step = Fraction(2) ** max(exponent - digits + 1, smallest)
    nearest = round(exact / step) * step
    return nearest if abs(nearest) < Fraction(2) ** largest else None


def pattern_of(value: Fraction | float, type_name: str) -> int:
    """Return the 64 bits in which a number of a type is passed."""
    if type_name in BITS:
        return int(value) & (2**64 - 1)
    if type_name == "bfloat16":
        return int(struct.unpack("=I", struct.pack("=f", value))[0]) >> 16
    real, whole = {"float16": "eH", "float32": "fI", "float64": "dQ"}[type_name]
    return int(struct.unpack(f"={whole}", struct.pack(f"={real}", value))[0])


def is_same(found: Any, wanted: Fraction | float) -> bool:
    if isinstance(wanted, float) and math.isnan(wanted):
        return math.isnan(found)
    return bool(found == wanted)


INTEGER_KINDS: list[Callable[[int], Any]] = [int, Large, ZeroDimensional]
INTEGER_KINDS += [getattr(np, name) for name in BITS if name != "bool"]
INTEGER_KINDS += [getattr(ctypes, f"c_{name}") for name in BITS if name != "bool"]
INTEGER_KINDS += [lambda n: np.array(n, "int64"), lambda n: np.array(n, ">u2")]
REAL_KINDS: list[Callable[[float], Any]] = [float, Real, ZeroDimensional, np.float16, np.float32]
REAL_KINDS += [np.float64, np.longdouble, ctypes.c_float, ctypes.c_double, ml_dtypes.bfloat16]
REAL_KINDS += [
    ml_dtypes.float8_e5m2,
    lambda x: np.array(x, "float32"),
    lambda x: np.array(x, ">f8"),
]
REAL_KINDS += [lambda x: np.array(x, ml_dtypes.bfloat16)]


def random_integer(chance: random.Random) -> Any:
    edge = chance.choice([0, 1, 2, 7, 8, 11, 15, 16, 24, 31, 32, 53, 63, 64])
    number = chance.choice([-1, 1]) * (2**edge + chance.randint(-2, 2))
    if chance.random() < 0.2:  # near the middle of two floats, with digits far below
        shift = chance.choice([40, 80, 100])
        number = (2**24 + 2 * chance.randint(0, 99) + 1) * 2**shift + chance.randint(-1, 1)
    if chance.random() < 0.05:
        return chance.choice([True, False, np.True_, np.False_, ctypes.c_bool(True), Level.SEVEN])
    try:
        return chance.choice(INTEGER_KINDS)(number)
    except OverflowError:
        return number


def random_real(chance: random.Random) -> Any:
    number = chance.choice(
        [
            chance.uniform(-4, 4),
            float(chance.randint(-300, 300)),
            math.ldexp(chance.uniform(-2, 2), chance.randint(-1080, 1023)),
            math.ldexp(chance.randint(2**23, 2**24) + 0.5, chance.randint(-160, 103)),
            math.ldexp(chance.randint(2**7, 2**8) + 0.5, chance.randint(-140, 120)),
            math.ldexp(chance.randint(2**10, 2**11) + 0.5, chance.randint(-40, 5)),
            chance.choice([0.0, -0.0, math.inf, -math.inf, math.nan, 65504.0, 65519.99, 65520.0]),
        ]
    )
    with np.errstate(over="ignore"):
        made = chance.choice(REAL_KINDS)(number)
    if isinstance(made, np.longdouble) and np.isfinite(made):
        return made + made * np.longdouble(chance.choice([0, 2.0**-60, -(2.0**-63)]))
    return made


def random_number(chance: random.Random) -> Any:
    return chance.choice([random_integer, random_real])(chance)


@pytest.fixture
def chance() -> random.Random:
    seed = int(os.environ.get("NUMBERS_SEED", random.randrange(2**32)))
    print(f"NUMBERS_SEED={seed}")
    return random.Random(seed)


def test_every_number_is_converted_to_every_type_as_the_oracle_says(chance) -> None:
    for _ in range(20_000):
        value, type_name = random_number(chance), chance.choice(TYPES)
        wanted = expected(value, type_name)
        shown = f"{value!r} of {type(value).__name__} to {type_name}: {wanted!r}"
        code = DataType.of(type_name)
        if wanted is None:
            with pytest.raises(UsageError, match=rf"^x is .*declared type {type_name} has"):
                pytest.fail(f"{shown}, found {declared_number(value, code, 'x')}")
            continue
        bits, number = declared_number(value, code, shown)
        assert is_same(number, wanted), shown
        if not math.isnan(wanted):
            assert bits == pattern_of(wanted, type_name) or wanted == 0, shown


OTHERS = [None, "1", b"1", 1j, np.complex64(1), Fraction(1, 2), Ellipsis, int, [1], np.zeros(1)]
OTHERS += [np.datetime64(1, "s"), np.timedelta64(1), np.array(1, "m8[s]"), np.array("1")]
OTHERS += [ctypes.c_char(b"1")]


@pytest.mark.parametrize("value", OTHERS, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize("code", [-1, DataType.INT64, DataType.FLOAT32])
def test_other_objects_are_no_numbers(value, code) -> None:
    with pytest.raises(UsageError, match=r"^argument x is .* declares a scalar; pass a bool"):
        declared_number(value, code, "argument x")


@pytest.mark.parametrize("name", [*REAL, "float8_e5m2"])
@pytest.mark.parametrize("number", [0.5, -0.0, math.inf, math.nan])
def test_an_array_without_dimensions_has_its_own_type_if_none_is_declared(name, number) -> None:
    bits, found = declared_number(Typed(number, f"library.{name}"), -1, "x")
    assert is_same(found, number)
    if not math.isnan(number):
        assert bits == pattern_of(number, name if name in REAL else "float64")


# ---- through every way in which a declared number travels ----


def numbers_that_fit(chance: random.Random, types: list[str]) -> list[Any]:
    found = []
    for type_name in types:
        value = random_number(chance)
        while expected(value, type_name) is None or math.isnan(expected(value, type_name)):
            value = random_number(chance)
        found.append(value)
    return found


def check_all(found: tuple[Any, ...], values: list[Any], types: list[str]) -> None:
    assert len(found) == len(types)
    for got, value, type_name in zip(found, values, types, strict=True):
        assert is_same(got, expected(value, type_name)), (got, value, type(value), type_name)


HALVES = {"first": TYPES[:7], "last": TYPES[7:]}
received: dict[str, tuple[Any, ...]] = {}


@kernel(core="aiv", signature=("inout", *map(Scalar, HALVES["first"])))
def first(out, *numbers):
    received["first"] = numbers


@kernel(core="aiv", signature=("inout", *map(Scalar, HALVES["last"])))
def last(out, *numbers):
    received["last"] = numbers


@pytest.mark.parametrize("runtime", ["host_build_graph", "tensormap_and_ringbuffer"])
def test_kernels_under_python_orchestrations(chance, runtime) -> None:
    numbers: dict[str, list[Any]] = {}

    def graph(rt, out):
        for one in (first, last):
            args = (out, *numbers[one.name])
            rt.add_task(one, args) if runtime == "host_build_graph" else rt.submit(one, *args)

    with pto_core.open_device("a2a3sim", runtime=runtime) as device:
        for _ in range(20):
            numbers |= {name: numbers_that_fit(chance, types) for name, types in HALVES.items()}
            device.run(graph, np.zeros(1))
            for name, types in HALVES.items():
                check_all(received[name], numbers[name], types)
        for name, types in HALVES.items():
            for wrong in types:
                numbers[name] = [10**400 if each == wrong else 0 for each in types]
                with pytest.raises(UsageError, match=f"declared type {wrong} has"):
                    device.run(graph, np.zeros(1))
            numbers[name] = [0] * len(types)


@pytest.fixture(scope="module")
def bits_chip(tmp_path_factory: pytest.TempPathFactory) -> ChipCallable:
    source = tmp_path_factory.mktemp("bits") / "bits.cpp"
    source.write_text(CPP)
    return ChipCallable(
        OrchestrationSource(Path(source), "bits_of"),
        signature=("inout", *(Scalar(name) for name in TYPES)),
    )


@task
def typed(
    out: Out,
    a: Annotated[int, Scalar("int8")],
    b: Annotated[int, Scalar("uint64")],
    c: Annotated[float, Scalar("float32")],
    d: Annotated[float, Scalar("bfloat16")],
    e: Annotated[bool, Scalar(bool)],
):
    out[:] = [a, b, c, d, e]
    assert [type(one) for one in (a, b, c, d, e)] == [int, int, float, float, bool]


TASK_TYPES = ["int8", "uint64", "float32", "bfloat16", "bool"]


def python_graph(rt, out, *numbers):
    received["graph"] = numbers


def test_orchestrations_and_tasks_at_levels_2_and_3(chance, bits_chip) -> None:
    with pto_core.open_device("a2a3sim", runtime="host_build_graph") as device:
        for _ in range(20):
            values, out = numbers_that_fit(chance, TYPES), np.zeros(len(TYPES), "uint64")
            device.run(bits_chip, out, *values)
            check_patterns(out, values)
            device.run(ChipCallable(python_graph, signature=bits_chip.signature), out, *values)
            check_all(received["graph"], values, TYPES)
    worker = Worker(level=3, runtime="host_build_graph", device_ids=[0], num_sub_workers=1)
    worker.register(bits_chip)
    worker.register(typed)
    with worker:
        out = worker.shared_array(len(TYPES), "uint64")
        seen = worker.shared_array(len(TASK_TYPES), "float64")
        for _ in range(5):
            values, few = numbers_that_fit(chance, TYPES), numbers_that_fit(chance, TASK_TYPES)
            with worker.session() as session:
                session.submit(bits_chip, out, *values)
                session.submit(typed, seen, *few)
            check_patterns(out, values)
            wanted = [float(expected(*one)) for one in zip(few, TASK_TYPES, strict=True)]
            assert seen.tolist() == wanted, few
        with worker.session() as session:
            zeros = [0] * len(TYPES)
            for index, type_name in enumerate(TYPES):
                changed = [10**400 if i == index else 0 for i, _ in enumerate(zeros)]
                named = f"argument {index + 1} of bits_of .*declared type {type_name}"
                with pytest.raises(UsageError, match=named):
                    session.submit(bits_chip, out, *changed)
            with pytest.raises(UsageError, match="argument a of task function typed is 300"):
                session.submit(typed, seen, 300, 0, 0, 0, 0)


# ---- through a TaskArgs, which the submit converts ----

PLAIN = [3, -1, 0.5, np.float32(0.1), np.float64(1 / 3), np.int64(7), np.uint8(200), True]
PLAIN += [ctypes.c_float(2.5), 2**64 - 1]
WRONG = {"int8": np.int64(300), "uint8": -1, "bool": 2, "int32": 0.5, "float16": 70000}


@kernel(core="aiv", signature=("inout", *map(Scalar, TYPES)))
def write_all(out, *numbers):
    out[:] = numbers


def all_written(rt, out, *numbers):
    rt.add_task(write_all, (out, *numbers))


def fitting(value: Any) -> list[Any]:
    """Return a number for each type: the value, or 0 for a type that does not contain it."""
    return [0 if expected(value, name) is None else value for name in TYPES]


def arguments(out: Any, values: list[Any]) -> TaskArgs:
    made = TaskArgs()
    made.add_tensor(out, TensorArgType.INOUT)
    for value in values:
        made.add_scalar(value)
    return made


def submit_one(orch: Any, chip: Any, out: Any, values: list[Any]) -> None:
    orch.submit_next_level(chip, arguments(out, values))


def submit_group(orch: Any, chip: Any, out: Any, values: list[Any]) -> None:
    orch.submit_next_level_group(chip, [arguments(out, values)])


def submit_many(orch: Any, chip: Any, out: Any, values: list[Any]) -> None:
    orch.submit_next_level_many(chip, arguments(out.reshape(1, -1), values[:4]), [values[4:]])


def graph_of(chip: Any, submits: list[tuple[Any, list[Any]]]) -> Any:
    """Return a graph function with a task for each way to submit and each row of numbers."""

    def graph(orch: Any, args: Any, config: Any) -> None:
        for out, (submit, values) in zip(args.tensor(0), submits, strict=True):
            submit(orch, chip, out, values)

    return graph


def captured(worker: Worker, graph: Any, given: TaskArgs) -> None:
    worker.replay(worker.capture(graph, given), given)


@pytest.mark.parametrize("way", ["run", "captured", "remote"])
@pytest.mark.parametrize("is_python", [False, True], ids=["cpp", "python"])
def test_a_submit_converts_the_numbers_of_a_task_args(bits_chip, way, is_python) -> None:
    chip = bits_chip
    if is_python:
        chip = ChipCallable(all_written, {}, bits_chip.signature, "bits_of")
    place = {"hosts": Hosts.on("local", num=1)} if way == "remote" else {}
    host = Worker(level=3, runtime="host_build_graph", device_ids=[0], **place)
    handle = host.register(chip, serialise=True)
    ways = [submit_one, submit_group, submit_many]
    right = [(submit, fitting(value)) for submit in ways for value in PLAIN]
    names = list(WRONG) * len(ways)
    wrong = [
        (submit, [value if one == name else 0 for one in TYPES])
        for submit in ways
        for name, value in WRONG.items()
    ]
    graphs = [graph_of(handle, each) for each in (right, *([one] for one in wrong))]
    with host if way != "remote" else Worker(level=4) as worker:
        if way == "remote":
            graphs = [worker.register(one, serialise=True) for one in graphs]
            worker.add_worker(host)
        call = captured if way == "captured" else Worker.run
        shape, dtype = (len(right), len(TYPES)), "float64" if is_python else "uint64"
        out = worker.shared_array(shape, dtype)

        def run(graph: Any, target: Any) -> None:
            given = arguments(target, [])
            if way == "remote":
                worker.run(lambda orch, _args, _config: orch.submit_next_level(graph, given))
            else:
                call(worker, graph, given)

        run(graphs[0], out)
        for found, (_, values) in zip(out, right, strict=True):
            wanted = [float(expected(*one)) for one in zip(values, TYPES, strict=True)]
            assert not is_python or found.tolist() == wanted
            if not is_python:
                check_patterns(found, values)
        for graph, name in zip(graphs[1:], names, strict=True):
            index = TYPES.index(name) + 1
            message = f"argument {index} of bits_of is .*declared type {name} has .* from "
            kind = TaskFailedError if way == "remote" else UsageError
            with pytest.raises(kind, match=message):
                run(graph, out[:1])


def check_patterns(out: np.ndarray[Any, Any], values: list[Any]) -> None:
    for got, value, type_name in zip(out.tolist(), values, TYPES, strict=True):
        wanted = expected(value, type_name)
        assert wanted == 0 or got == pattern_of(wanted, type_name), (got, value, type_name)


# ---- numbers and arrays in each other's place ----

NO_ARRAYS = [1, 0.5, True, None, "x", [1.0], np.ones(4).sum(), np.int64(3), ml_dtypes.bfloat16(1)]
NO_ARRAYS += [ctypes.c_double(1), np.datetime64(1, "s"), 2**63, Level.SEVEN]


@kernel(core="aiv")
def increment(x: InOut, by: Scalar):
    x += by


@pytest.mark.parametrize("runtime", ["host_build_graph", "tensormap_and_ringbuffer"])
def test_a_kernel_gets_no_number_as_an_array_and_no_array_as_a_number(runtime) -> None:
    def graph_of(*values):
        def graph(rt, x):
            given = values or (x, x)
            if runtime == "host_build_graph":
                rt.add_task(increment, given)
            rt.submit(increment, *given)

        return graph

    message = r"argument 0 .'x'. of a task of kernel 'increment' is "
    with pto_core.open_device("a2a3sim", runtime=runtime) as device:
        for value in NO_ARRAYS:
            with pytest.raises(UsageError, match=message):
                device.run(graph_of(value, 1), np.zeros(1))
        with pytest.raises(UsageError, match=r"argument 1 .'by'. .* its signature declares scalar"):
            device.run(graph_of(), np.zeros(1))


def test_runs_and_submits_get_no_number_as_an_array(bits_chip) -> None:
    python_chip = ChipCallable(python_graph, signature=bits_chip.signature)
    zeros = [0] * len(TYPES)
    with pto_core.open_device("a2a3sim", runtime="host_build_graph") as device:
        for chip, value in itertools.product((bits_chip, python_chip), NO_ARRAYS):
            with pytest.raises(UsageError, match=r"argument 0 .*pass an? .*array"):
                device.run(chip, value, *zeros)
        for chip in (bits_chip, python_chip):
            with pytest.raises(UsageError, match=r"argument 1 .*declares a scalar"):
                device.run(chip, np.zeros(13, "uint64"), np.zeros(2), *zeros[1:])
    worker = Worker(level=3, runtime="host_build_graph", device_ids=[0], num_sub_workers=1)
    worker.register(bits_chip)
    worker.register(typed)
    with worker, worker.session() as session:
        array = worker.shared_array(13, "uint64")
        for value in NO_ARRAYS:
            with pytest.raises(UsageError, match=r"argument 0 of bits_of.*pass an? .*ar"):
                session.submit(bits_chip, value, *zeros)
            with pytest.raises(
                UsageError, match=r"argument out of task .* typed.*pass an? .*array"
            ):
                session.submit(typed, value, *[0] * 5)
        with pytest.raises(UsageError, match=r"argument 1 of bits_of .*declares a scalar"):
            session.submit(bits_chip, array, array, *zeros[1:])
        with pytest.raises(UsageError, match=r"argument a of task .* typed .*declares a scalar"):
            session.submit(typed, array, array, 0, 0, 0, 0)
        with pytest.raises(UsageError, match="which is no array"):
            TaskArgs().add_tensor(np.ones(4).sum())
