"""The kit reads the layouts and the constants of the headers as a C++ compiler does."""

from __future__ import annotations

import ctypes
import subprocess

import pytest

from pto_core import TensorArgType
from pto_core.interfaces.frame import AnswerKind, FrameKind, Outcome
from pto_core.kernels import CoreType, DataType, Direction
from pto_devkit import abi


def assertions() -> list[str]:
    lines = [f"static_assert({name} == {value}u);" for name, value in abi.constants().items()]
    structures = {
        name: found
        for name in abi.type_names()
        if isinstance(found := abi.type_of(name), type) and issubclass(found, ctypes.Structure)
    }
    assert len(structures) > 40
    for c_name, structure in structures.items():
        lines.append(f"static_assert(sizeof({c_name}) == {ctypes.sizeof(structure)});")
        for field in structure._fields_:
            member = getattr(structure, field[0])
            c_field = f"{c_name}, {field[0].rstrip('_')}"
            lines.append(f"static_assert(offsetof({c_field}) == {member.offset});")
            size = f"sizeof({c_name}::{field[0].rstrip('_')})"
            lines.append(f"static_assert({size} == {member.size});")
    return lines


def test_layouts_and_constants_are_those_of_the_headers(tmp_path, compiler, include) -> None:
    source = tmp_path / "mirror.cpp"
    headers = [f'#include "{header}"' for header in abi.HEADERS]
    source.write_text("\n".join([*headers, *assertions()]))
    subprocess.run(
        [*compiler, "-std=c++20", "-fsyntax-only", f"-I{include}", str(source)], check=True
    )


def test_enumerations_have_the_names_of_the_headers() -> None:
    assert abi.Status.OK == 0
    assert abi.Status.INTERNAL.name == "INTERNAL"
    assert list(abi.Core) == [abi.Core.AIC, abi.Core.AIV]
    assert [tag.name for tag in abi.Tag][:3] == ["INPUT", "OUTPUT", "INOUT"]
    assert [step.name for step in abi.Step] == ["IDLE", "PROGRESS", "DONE", "ERROR"]


@pytest.mark.parametrize(
    ("prefix", "kind"),
    [
        ("TAG", TensorArgType),
        ("CORE", CoreType),
        ("DTYPE", DataType),
        ("FRAME", FrameKind),
        ("ANSWER", AnswerKind),
        ("OUTCOME", Outcome),
    ],
)
def test_enumerations_of_the_core_have_the_numbers_of_the_headers(prefix, kind) -> None:
    numbers = {f"PTO_{prefix}_{member.name}": member.value for member in kind if member.value >= 0}
    assert numbers.items() <= abi.constants().items()


def test_directions_are_the_tags_of_the_headers() -> None:
    shorter = {"INPUT": "IN", "OUTPUT": "OUT", "OUTPUT_EXISTING": "OUT_EXISTING"}
    tags = {shorter.get(tag.name, tag.name): tag.value for tag in abi.Tag}
    tags["UNSPECIFIED"] = abi.constants()["PTO_ANY"]
    assert {direction.name: direction.value for direction in Direction} == tags
