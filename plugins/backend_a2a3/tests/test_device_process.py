"""The device library on the device process, with the variants of the repository."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from native_builds import NativeBuild, symbols, tool

PACKAGE = Path(__file__).parents[1]
NATIVE = PACKAGE / "native"
ROOT = PACKAGE.parents[1]
PLUGINS = PACKAGE.parent
PROGRAM = Path("tests", "device_process", "on_device_process")
RUNS = Path("native", "tests")
CROSS = "aarch64-linux-gnu-g++"
RULES = ("-std=c++17", "-fno-exceptions", "-fno-rtti", "-fno-threadsafe-statics")
WARNINGS = ("-Wall", "-Wextra", "-Wpedantic", "-Werror")
# Without PTO_A2A3_CHIP the library is for a device process on an AArch64 machine.
TARGETS = {"chip": ("-DPTO_A2A3_CHIP",), "device process": ()}
OTHERS = (
    *("chip_executor.cpp", "dispatcher.cpp", "native_executor.cpp", "probe.cpp"),
    "probe_kernel.cpp",
)
DISPATCHER = {
    *("DynTileFwkBackendKernelServer", "DynTileFwkBackendKernelServerInit"),
    "StaticTileFwkBackendKernelServer",
}
SANITIZERS = pytest.mark.parametrize(
    "settings",
    [
        pytest.param((), id="plain"),
        pytest.param(
            ("PTO_SANITIZE=address,undefined",), id="address", marks=pytest.mark.toolchain
        ),
        pytest.param(("PTO_SANITIZE=thread",), id="thread", marks=pytest.mark.toolchain),
    ],
)
# The functions of other libraries that the device library may use: C, POSIX and Linux.
FUNCTIONS = {
    *("__errno_location", "clock_gettime", "dlclose", "dlerror", "dlopen", "dlsym", "free"),
    *("getpid", "madvise", "memcmp", "memcpy", "memmove", "memset", "mincore", "mmap", "munmap"),
    *("close", "open", "realloc", "sched_getcpu", "sched_yield", "strcpy", "strerror", "strlen"),
    *("sysconf", "unlink", "write", "__stack_chk_fail", "__stack_chk_guard"),
    # the compiler's start-up files
    *("_ITM_deregisterTMCloneTable", "_ITM_registerTMCloneTable", "__cxa_finalize"),
    "__gmon_start__",
}


@SANITIZERS
def test_variants_on_the_device_process(
    native_build: NativeBuild, settings: tuple[str, ...]
) -> None:
    """The device process, the device library and the variants have the same sanitizer."""
    variants = [native_build(PLUGINS / name, *settings) for name in ("runtime_hbg", "runtime_pto2")]
    subprocess.run(
        [native_build(PACKAGE, *settings) / PROGRAM, *variants],
        check=True,
        timeout=900,
        env={**os.environ, "LSAN_OPTIONS": "use_tls=0"},
    )


@SANITIZERS
@pytest.mark.parametrize("program", ["on_fake_driver", "table_runs"])
def test_runs_through_the_fake_driver(
    native_build: NativeBuild, settings: tuple[str, ...], program: str
) -> None:
    """The host calls CANN; the fake driver passes launches to the device process."""
    variant = native_build(PLUGINS / "runtime_hbg", *settings)
    subprocess.run(
        [native_build(PACKAGE, *settings) / RUNS / program, variant],
        check=True,
        timeout=900,
        env={**os.environ, "LSAN_OPTIONS": "use_tls=0"},
    )


@pytest.mark.toolchain
@pytest.mark.parametrize("target", TARGETS)
def test_the_device_library_builds_for_aarch64(target: str, tmp_path: Path) -> None:
    library = tmp_path / "device.so"
    command = [
        *(tool(CROSS), *RULES, *WARNINGS, "-O2", "-fPIC", "-shared", "-fvisibility=hidden"),
        *("-mno-outline-atomics", *TARGETS[target], f"-I{NATIVE}", f"-I{ROOT}/pto_core/include"),
        *(path for path in sorted((NATIVE / "device").glob("*.cpp")) if path.name not in OTHERS),
        *("-nodefaultlibs", "-o", library, "-lc", "-lgcc"),
    ]
    subprocess.run(command, check=True)
    assert symbols(library, "--defined-only", "aarch64-linux-gnu-nm") == {"pto_a2a3_serve"}
    needed = symbols(library, "--undefined-only", "aarch64-linux-gnu-nm")
    silicon = {name for name in needed if name.startswith("silicon_")}
    assert needed - silicon <= FUNCTIONS
    assert bool(silicon) == (target == "device process")
    code = disassembly(library)
    assert ("dc\tcivac" in code) == (target == "chip")
    assert ("dc\tcvac" in code) == (target == "chip")


@pytest.mark.toolchain
def test_the_dispatcher_builds_for_aarch64(tmp_path: Path) -> None:
    library = tmp_path / "dispatcher.so"
    command = [
        *(tool(CROSS), *RULES, *WARNINGS, "-O2", "-fPIC", "-shared", "-fvisibility=hidden"),
        *("-DPTO_A2A3_CHIP", f"-I{NATIVE}", f"-I{ROOT}/pto_core/include"),
        *(NATIVE / "device" / "dispatcher.cpp", "-nodefaultlibs", "-o", library, "-lc", "-lgcc"),
    ]
    subprocess.run(command, check=True)
    assert symbols(library, "--defined-only", "aarch64-linux-gnu-nm") == DISPATCHER
    needed = symbols(library, "--undefined-only", "aarch64-linux-gnu-nm")
    assert needed <= FUNCTIONS | {"rename", "stat"}
    assert b"/usr/lib64/aicpu_kernels/0/aicpu_kernels_device" in library.read_bytes()
    assert "dc\tcivac" in disassembly(library)


@pytest.mark.toolchain
def test_the_executor_builds_for_aarch64(tmp_path: Path) -> None:
    library = tmp_path / "executor.so"
    command = [
        *(tool(CROSS), *RULES, *WARNINGS, "-O2", "-fPIC", "-shared", "-fvisibility=hidden"),
        *(f"-I{NATIVE}", f"-I{ROOT}/pto_core/include", NATIVE / "device" / "native_executor.cpp"),
        *("-nodefaultlibs", "-o", library, "-lc", "-lgcc"),
    ]
    subprocess.run(command, check=True)
    assert symbols(library, "--defined-only", "aarch64-linux-gnu-nm") == {
        "pto_a2a3_executor_0_mix_aic",
        "pto_a2a3_executor_0_mix_aiv",
    }


def disassembly(library: Path) -> str:
    command = [tool("aarch64-linux-gnu-objdump"), "-d", "--no-show-raw-insn", library]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_the_device_library_exports_one_function(native_build: NativeBuild) -> None:
    library = native_build(PACKAGE) / "native" / "device" / "libpto_a2a3_device.so"
    assert symbols(library, "--defined-only") == {"pto_a2a3_serve"}
