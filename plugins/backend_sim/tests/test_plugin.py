"""The plugin object: its identity, its settings, and its recipe for kernels."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from pto_backend_sim import plugin
from pto_core.interfaces import API_VERSION, Backend, Option

PACKAGE = Path(__file__).parents[1]
OPTIONS = {option.key: option for option in plugin.options()}

# A kernel written like published kernels: it has its own macros, attributes of the device compiler
# and a repeated definition.
KERNEL = """
#include <cstdint>
#ifndef __aicore__
#define __aicore__ [aicore]
#endif
#ifndef __gm__
#define __gm__ __attribute__((address_space_of_the_device))
#endif
#ifndef __CPU_SIM
#error the simulator is not announced
#endif
#define PTO_CPU_MAX_THREADS 1
extern "C" __global__ __aicore__ __attribute__((always)) void kernel_entry(__gm__ int64_t* args) {
  *args *= 2;
}
"""


def test_the_plugin_conforms_to_backend() -> None:
    assert isinstance(plugin, Backend)
    assert plugin.name == "a2a3sim"
    assert plugin.api_version == API_VERSION
    assert plugin.capabilities == {
        *("threads", "deterministic", "checking", "callbacks", "planning", "activity", "dump")
    }


def test_both_names_select_the_simulator() -> None:
    metadata = tomllib.loads((PACKAGE / "pyproject.toml").read_text())
    names = metadata["project"]["entry-points"]["pto.backends"]
    assert names == {"a2a3sim": "pto_backend_sim:plugin", "sim": "pto_backend_sim:plugin"}


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("sim.mode", "deterministic", "deterministic"),
        ("sim.seed", "18446744073709551615", 2**64 - 1),
        ("sim.check", "true", True),
        ("sim.memory_bytes", "16M", 2**24),
        ("sim.workers", "2", 2),
        ("sim.blocks", "24", 24),
        ("sim.timing", "no", False),
        ("sim.activity_fd", "7", 7),
        ("sim.activity_fd", "none", None),
        ("sim.log_level", "info", "info"),
        ("sim.log_level", "none", None),
        ("sim.log_format", "json", "json"),
        ("sim.log_format", "none", None),
    ],
)
def test_valid_options_parse(key: str, text: str, value: object) -> None:
    assert OPTIONS[key].parse(text) == value


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("sim.mode", "timed"),
        ("sim.seed", "-1"),
        ("sim.seed", str(2**64)),
        ("sim.check", "perhaps"),
        ("sim.memory_bytes", "64K"),
        ("sim.memory_bytes", "5T"),
        ("sim.memory_bytes", "much"),
        ("sim.workers", "63"),
        ("sim.blocks", "0"),
        ("sim.blocks", "25"),
        ("sim.timing", ""),
        ("sim.activity_fd", "-1"),
        ("sim.log_level", "loud"),
        ("sim.log_format", "xml"),
    ],
)
def test_invalid_options_are_refused(key: str, text: str) -> None:
    with pytest.raises(ValueError):
        OPTIONS[key].parse(text)


@pytest.mark.parametrize("option", plugin.options(), ids=lambda option: option.key)
def test_defaults_are_values_that_parse(option: Option) -> None:
    assert option.parse(str(option.default).lower()) == option.default
    assert option.native == option.key.removeprefix("sim.")


def test_the_readme_lists_every_setting() -> None:
    readme = (PACKAGE / "README.md").read_text()
    assert all(f"| `{key}` |" in readme for key in OPTIONS)


@pytest.mark.parametrize("core_type", ["aic", "aiv"])
def test_a_published_kernel_compiles(core_type: str, tmp_path: Path) -> None:
    toolchain = plugin.build_recipe(core_type)
    assert toolchain is not None
    source = tmp_path / "kernel.cpp"
    source.write_text(KERNEL)
    compiler = os.environ.get("CXX") or shutil.which("g++") or "c++"
    subprocess.run(
        [
            *compiler.split(),
            f"-std={toolchain.standard or 'c++23'}",
            *toolchain.flags,
            *(f"-D{definition}" for definition in toolchain.definitions),
            source,
            "-o",
            tmp_path / "kernel.so",
        ],
        check=True,
    )
    code = f"""
import ctypes
value = ctypes.c_int64(21)
ctypes.CDLL({str(tmp_path / "kernel.so")!r}).kernel_entry(ctypes.byref(value))
raise SystemExit(value.value != 42)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("core_type", ["aic", "aiv"])
def test_kernels_contain_no_contracted_multiplication(core_type: str, tmp_path: Path) -> None:
    """a * b + c has the same bytes on every machine, also on those with an instruction for it."""
    recipe = plugin.build_recipe(core_type)
    assert recipe is not None
    source = tmp_path / "kernel.cpp"
    source.write_text("void kernel_entry(double* a) { a[0] = a[1] * a[2] + a[3]; }")
    compiler = os.environ.get("CXX") or shutil.which("g++") or "c++"
    machine = ("-mfma",) if platform.machine() == "x86_64" else ()

    def assembly(*more: str) -> str:
        command = [*compiler.split(), *recipe.flags, *machine, *more, "-S", "-o", "-", source]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    assert "fmadd" in assembly("-ffp-contract=fast")
    assert "fmadd" not in assembly()


def test_an_unknown_kind_of_code_is_refused() -> None:
    with pytest.raises(ValueError, match="'gpu'; expected one of aic, aiv, orchestration"):
        plugin.build_recipe("gpu")


def test_a_variant_runs_in_the_host_process() -> None:
    assert plugin.build_recipe("runtime") is None
    assert plugin.build_recipe("orchestration") is not None
