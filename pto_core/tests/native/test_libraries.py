"""Libraries that are not plugins, or were built for another core, are refused by name."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from pto_core import _native
from pto_core.errors import PluginLoadError, PluginVersionError
from pto_devkit import abi

SIZE = ctypes.sizeof(abi.BackendApi)
BACKEND = """
#include <cstdint>
static const uint32_t table[100] = {{{version}, {size}}};
extern "C" const void* pto_backend_entry() {{ return table; }}
extern "C" const void* pto_runtime_entry(const char* variant) {{
  return variant[0] == 'k' ? table : nullptr;
}}
"""


def library(folder: Path, source: str) -> str:
    compiler = shutil.which("g++") or shutil.which("clang++") or "c++"
    path = folder / "plugin.cpp"
    path.write_text(source)
    built = folder / "libplugin.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(built), str(path)], check=True)
    return str(built)


def open_with(backend: str, runtime: str = "", variant: str = "known") -> Any:
    return _native.Device(
        backend_library=backend,
        runtime_library=runtime or backend,
        variant=variant,
        artefacts=[],
        number=0,
        backend_options={},
        runtime_options={},
    )


def test_a_missing_library(tmp_path: Path) -> None:
    with pytest.raises(PluginLoadError, match=r"gone\.so cannot be loaded"):
        open_with(str(tmp_path / "gone.so"))


def test_a_library_without_the_entry(tmp_path: Path) -> None:
    path = library(tmp_path, "int nothing;")
    with pytest.raises(PluginLoadError, match="does not export pto_backend_entry"):
        open_with(path)


def test_another_abi_version(tmp_path: Path) -> None:
    path = library(tmp_path, BACKEND.format(version=7, size=SIZE))
    with pytest.raises(PluginVersionError, match="ABI version 7, but this core needs 0") as caught:
        open_with(path)
    assert (caught.value.wanted, caught.value.found) == (_native.ABI_VERSION, 7)


def test_another_table_size(tmp_path: Path) -> None:
    path = library(tmp_path, BACKEND.format(version=0, size=SIZE - 8))
    with pytest.raises(
        PluginVersionError, match=f"size {SIZE - 8}, but this core needs {SIZE}"
    ) as caught:
        open_with(path)
    assert (caught.value.wanted, caught.value.found) == (SIZE, SIZE - 8)


def test_an_unknown_variant(tmp_path: Path) -> None:
    path = library(tmp_path, BACKEND.format(version=0, size=SIZE))
    with pytest.raises(PluginLoadError, match="has no runtime variant 'other'"):
        open_with(path, variant="other")
