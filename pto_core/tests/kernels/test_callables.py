"""Kernels and chips: their parts, their digests, and the values that they refuse."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pytest

from pto_core import ChipCallable, CoreCallable, In, InOut, KernelSource, Out, Scalar, kernel
from pto_core.errors import UsageError
from pto_core.kernels import CoreType, DataType, Direction, OrchestrationSource


def graph(rt, a: In, b: Out, size=3): ...


@kernel(core="aiv")
def add(a, b):
    """Add in place."""
    a += b


def closure(value: int) -> Callable[[Any], Any]:
    return lambda a: a + value


def test_a_kernel_is_still_a_function() -> None:
    values = np.ones(3)
    assert add(values, 2) is None
    assert values.tolist() == [3, 3, 3]
    assert add.__doc__ == "Add in place."
    assert (add.name, add.core_type) == ("add", CoreType.AIV)


def test_a_compiled_kernel_needs_numba(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numba", None)
    with pytest.raises(UsageError, match="install it with `pip install numba`"):
        kernel(core="aiv", jit="numba")(lambda x: None)
    with pytest.raises(UsageError, match="jit is 'cython'; pass 'numba' or None"):
        kernel(core="aiv", jit="cython")


def test_a_cpp_kernel_is_not_a_function(tmp_path: Path) -> None:
    path = tmp_path / "relu.cpp"
    made = CoreCallable(KernelSource(path), "aic")
    assert (made.name, made.function) == ("relu", None)
    with pytest.raises(UsageError, match="'relu' is C\\+\\+"):
        made()


@pytest.mark.parametrize("core", ["AIX", "", None, 7])
def test_unknown_cores_are_refused(core: Any) -> None:
    with pytest.raises(UsageError, match="use 'aic' or 'aiv'"):
        CoreCallable(len, core)


@pytest.mark.parametrize("kernel_binary", [len, KernelSource("relu.cpp")])
def test_only_a_library_has_any_core(kernel_binary: Any) -> None:
    with pytest.raises(UsageError, match="'any' is for the path of a compiled kernel"):
        CoreCallable(kernel_binary, "any")
    assert CoreCallable("relu.so", "any").core_type == -1


def test_the_decorator_needs_a_core() -> None:
    with pytest.raises(UsageError, match="core='aiv'"):
        kernel(lambda a: None)  # type: ignore[arg-type]


@pytest.mark.parametrize("binary", [3, None, b"code"])
def test_objects_that_are_no_kernel_are_refused(binary: Any) -> None:
    with pytest.raises(UsageError, match="is not a kernel"):
        CoreCallable(binary, "aiv")


def test_digests_have_32_bytes_and_cover_everything(tmp_path: Path) -> None:
    source = tmp_path / "k.cpp"
    source.write_text("one")
    other = tmp_path / "other.cpp"
    other.write_text("two")
    kernels = [
        CoreCallable(KernelSource(source), "aiv"),
        CoreCallable(KernelSource(source), "aic"),
        CoreCallable(KernelSource(other), "aiv"),
        CoreCallable(source, "aiv"),
        CoreCallable(KernelSource(source), "aiv", (In("float32", 4),)),
        CoreCallable(add.function or len, "aiv"),
        CoreCallable(closure(1), "aiv"),
        CoreCallable(closure(1), "aiv"),
        CoreCallable(lambda a: a.fill(0), "aiv"),
        CoreCallable(lambda a: a.sort(0), "aiv"),
        CoreCallable(KernelSource(source, ["-DN=1"]), "aiv"),
        CoreCallable(KernelSource(source, ["-DN=2"]), "aiv"),
    ]
    orchestration = OrchestrationSource(other, "build")
    chips = [
        ChipCallable(graph, {0: kernels[0]}),
        ChipCallable(graph, {1: kernels[0]}),
        ChipCallable(graph, {0: kernels[1]}),
        ChipCallable(graph, {0: kernels[0]}, signature=("in", "out")),
        ChipCallable(orchestration, {0: kernels[0]}),
        ChipCallable(OrchestrationSource(other, "other"), {0: kernels[0]}),
        ChipCallable(OrchestrationSource(other, "build", ["-DN=1"]), {0: kernels[0]}),
    ]
    digests = [one.digest for one in (*kernels, *chips)]
    assert {len(digest) for digest in digests} == {32}
    assert len(set(digests)) == len(digests)
    assert ChipCallable(graph, {0: kernels[0]}).digest == chips[0].digest
    both = {0: kernels[0], 1: kernels[1]}
    reversed_order = ChipCallable(graph, dict(reversed(both.items())))
    assert ChipCallable(graph, both).digest == reversed_order.digest
    source.write_text("changed")
    assert CoreCallable(KernelSource(source), "aiv").digest != kernels[0].digest


@pytest.mark.parametrize("option", ["-O3", "-D", "N=1", "", "-fplugin=x.so", "@file", 3])
@pytest.mark.parametrize("kind", [KernelSource, OrchestrationSource])
def test_other_options_of_a_source_are_refused(kind: Any, option: Any) -> None:
    with pytest.raises(UsageError, match=f"{option!r} is not an option of a source; use -DNAME"):
        kind("k.cpp", options=[option])


def test_a_digest_is_the_same_in_another_process(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "from pto_core import ChipCallable, kernel\n"
        "@kernel(core='aiv')\n"
        "def one(a): return a in {'x', 'y', 'z'} or [b for b in a]\n"
        "def graph(rt, a): rt.add_task(one, (a,))\n"
        "print(ChipCallable(graph, {0: one}).digest.hex())\n"
    )
    found = {
        subprocess.run(
            [sys.executable, str(program)], check=True, capture_output=True, text=True
        ).stdout
        for _ in range(3)
    }
    assert len(found) == 1


def test_a_missing_file_is_named_by_the_digest(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"gone\.cpp cannot be read: No such file"):
        _ = CoreCallable(KernelSource(tmp_path / "gone.cpp"), "aiv").digest


@pytest.mark.parametrize(
    ("func_id", "child", "message"),
    [
        (-1, add, "func_id -1"),
        ("0", add, "func_id '0'"),
        (2**31, add, "func_id"),
        (0, len, "is <b"),
    ],
)
def test_children_are_checked(func_id: Any, child: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        ChipCallable(graph, {func_id: child})


def test_objects_that_are_no_orchestration_are_refused() -> None:
    with pytest.raises(UsageError, match="is not an orchestration"):
        ChipCallable(3)  # type: ignore[arg-type]


def test_an_annotation_may_have_its_direction_among_other_extras() -> None:
    def annotated(
        a: Annotated[np.ndarray[Any, Any], In],
        b: Annotated[np.ndarray[Any, Any], "a note", Out("float32", 4)],
        c: Annotated[float, Scalar("float32"), "a note"],
        d: Annotated[int, "a note"],
    ) -> None: ...

    parameters = kernel(core="aiv")(annotated).task_signature().parameters
    directions = [Direction.IN, Direction.OUT, Direction.SCALAR, Direction.UNSPECIFIED]
    assert [direction for _, direction, _ in parameters] == directions
    assert [code for _, _, code in parameters] == [-1, DataType.FLOAT32, DataType.FLOAT32, -1]


def test_directions_are_read_from_annotations() -> None:
    def plain(rt, a: In, b: "Out", c: InOut("float32", (4, 4)), d, e: int): ...  # noqa: UP037

    directions, by_tensor = ChipCallable(plain).directions()
    assert directions == [
        Direction.IN,
        Direction.OUT,
        Direction.INOUT,
        Direction.UNSPECIFIED,
        Direction.UNSPECIFIED,
    ]
    assert not by_tensor


def test_directions_are_read_from_a_signature() -> None:
    by_tensor = ChipCallable(graph, signature=("in", "INOUT", Out)).directions()
    assert by_tensor == ([Direction.IN, Direction.INOUT, Direction.OUT], True)
    by_argument = ChipCallable(graph, signature=("in", "scalar", Direction.OUT)).directions()
    assert by_argument == ([Direction.IN, Direction.SCALAR, Direction.OUT], False)
    with pytest.raises(UsageError, match="'input' in a signature is not a direction"):
        ChipCallable(graph, signature=("input",))


def test_parameters_of_an_orchestration() -> None:
    assert ChipCallable(graph).parameters() == (["a", "b", "size"], 2, 3)
    assert ChipCallable(lambda rt, *more: None).parameters() == ([], 0, -1)
    assert ChipCallable(lambda *all: None).parameters() == ([], 0, -1)
    source = OrchestrationSource("x.cpp", "f")
    assert ChipCallable(source, argument_names=("a",)).parameters() == (["a"], 0, -1)
    assert ChipCallable(source, signature=("in", "scalar")).parameters() == ([], 2, 2)


def test_a_direction_makes_the_parameter_that_its_class_makes() -> None:
    made = Direction.IN("bfloat16", 4)
    assert (type(made), made.dtype, made.shape) == (In, DataType.BFLOAT16, (4,))
    assert repr(Direction.NO_DEP()) == "NoDep()"
    assert Direction.SCALAR().dtype is DataType.INT64
    assert Direction.SCALAR(float).dtype is DataType.FLOAT64
    with pytest.raises(UsageError, match="pass both or neither"):
        Direction.OUT(shape=3)
    with pytest.raises(UsageError, match="is not a direction"):
        Direction.UNSPECIFIED()


def test_types_and_shapes_are_passed_together() -> None:
    described = In("bfloat16", 4)
    assert (described.dtype, described.shape) == (DataType.BFLOAT16, (4,))
    assert Scalar(float).dtype is DataType.FLOAT64
    with pytest.raises(UsageError, match="pass both or neither"):
        Out("float32")
    with pytest.raises(UsageError, match="is not a data type"):
        In("text", 3)
