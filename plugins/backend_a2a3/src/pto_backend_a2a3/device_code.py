"""Code for the AICPU of a device: its recipe, and the libraries whose sources the wheel has.

The AICPU is an AArch64 processor with Linux. The compiler of the toolkit is the default, because it
is made for the C library of the device. Another compiler is as good if the code needs no symbol
that is newer than the ceilings, which the toolchain checks.
"""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

from pto_backend_a2a3.core_code import toolkit_folders
from pto_core.interfaces import BuildRecipe, DeviceBuild, DeviceLibrary, abi_include_dir

CHIP = "PTO_A2A3_CHIP"
"""The macro that selects the access to memory and registers of the chip."""

_NATIVE = Path(__file__).with_name("native")
_TOOLKIT_COMPILERS = (
    "tools/hcc/bin/aarch64-target-linux-gnu-g++",
    "toolkit/toolchain/hcc/bin/aarch64-target-linux-gnu-g++",
)
# The oldest C library for AArch64, and the C++ library of GCC 7.3, on which the toolkit is based.
_CEILINGS = {"GLIBC": "2.17", "GLIBCXX": "3.4.24", "CXXABI": "1.3.11", "GCC": "4.3.0"}
# GCC 7.3 has no outline atomics. Without them, the code needs no function of libgcc.
_OTHER_COMPILER = "aarch64-linux-gnu-g++ -mno-outline-atomics"
_STANDARD = "gnu++17"
# The last flag makes results equal to those of machines that cannot fuse a * b + c.
_FLAGS = ("-shared", "-fPIC", "-ffp-contract=off")
# Of other libraries, a variant needs functions of the C library only.
_RUNTIME_FLAGS = ("-nostdlib", "-Wl,--no-as-needed", "-lc")
_EXECUTOR = "pto_a2a3_executor_0_mix_aic"
_DEVICE_SOURCES = ("cores", "device", "dump", "entry", "loader", "platform", "pool", "run")


def aicpu_recipe(kind: str) -> BuildRecipe:
    """Return the recipe for code of the AICPU; ``kind`` is ``orchestration`` or ``runtime``."""
    return BuildRecipe(
        compilers=(*_toolkit_compilers(), _OTHER_COMPILER),
        standard=_STANDARD,
        flags=(*_FLAGS, *(_RUNTIME_FLAGS if kind == "runtime" else ())),
        ceilings=_CEILINGS,
    )


def _toolkit_compilers() -> tuple[str, ...]:
    return tuple(
        shlex.quote(str(folder / name))
        for folder in toolkit_folders()
        for name in _TOOLKIT_COMPILERS
    )


def device_libraries(recipe: BuildRecipe, *definitions: str) -> tuple[DeviceLibrary, ...]:
    """List the libraries of the AICPU. ``recipe``: the recipe of the kind ``runtime``.

    ``definitions``: :data:`CHIP` for a card; none for the fake driver of the tests.
    """
    recipe = replace(recipe, definitions=(*recipe.definitions, *definitions))
    return (
        _library("dispatcher", "DynTileFwkBackendKernelServerInit", recipe, "dispatcher"),
        _library("device", "pto_a2a3_serve", recipe, *_DEVICE_SOURCES),
    )


def probe_library(recipe: BuildRecipe) -> DeviceLibrary:
    """Return the variant that the check of a card runs. ``recipe``: as for device_libraries()."""
    return _library("probe", "pto_runtime_entry", recipe, "probe")


def native_executor(recipe: BuildRecipe) -> DeviceLibrary:
    """Return the executor for the fake driver, whose cores are threads."""
    return _library("executor", _EXECUTOR, recipe, "native_executor")


def _library(option: str, entry: str, recipe: BuildRecipe, *sources: str) -> DeviceLibrary:
    build = DeviceBuild(
        sources=tuple(_NATIVE / "device" / f"{name}.cpp" for name in sources),
        include_dirs=(_NATIVE, abi_include_dir()),
    )
    return DeviceLibrary(option, entry, build, recipe)
