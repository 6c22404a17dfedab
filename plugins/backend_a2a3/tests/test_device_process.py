"""The device library on the device process, with the variants of the repository."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from native_builds import NativeBuild, symbols, tool

from pto_backend_a2a3.device_code import CHIP, aicpu_recipe, device_libraries, native_executor
from pto_core.config import load
from pto_core.errors import CompileError
from pto_core.interfaces import DeviceBuild, DeviceLibrary
from pto_core.toolchain import Toolchain

PACKAGE = Path(__file__).parents[1]
PLUGINS = PACKAGE.parent
PROGRAM = Path("tests", "device_process", "on_device_process")
RUNS = Path("native", "tests")
WARNINGS = ("-Wall", "-Wextra", "-Wpedantic", "-Werror")
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
# The functions of other libraries that the libraries of the AICPU may use: C, POSIX and Linux.
FUNCTIONS = {
    *("__errno_location", "clock_gettime", "dlclose", "dlerror", "dlopen", "dlsym", "free"),
    *("getpid", "madvise", "memcmp", "memcpy", "memmove", "memset", "mincore", "mmap", "munmap"),
    *("close", "open", "realloc", "rename", "sched_getcpu", "sched_yield", "strcpy"),
    *("strerror", "strlen", "sysconf", "unlink", "write"),
    *("__stack_chk_fail", "__stack_chk_guard"),
    "DlogRecord",  # of the vendor; weak, so it may be missing
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


@pytest.mark.timeout(900)  # its threads take turns, which takes long beside other tests
def test_each_call_of_a_device_fails_once(native_build: NativeBuild) -> None:
    """The calls of CANN from open() to close() of the backend table, and the device process."""
    program = native_build(PACKAGE) / RUNS / "table_faults"
    subprocess.run([program, native_build(PLUGINS / "runtime_hbg")], check=True, timeout=900)


@pytest.fixture
def toolchain(tmp_path: Path) -> Toolchain:
    return Toolchain(load({"cache_dir": tmp_path}))


def build(toolchain: Toolchain, library: DeviceLibrary) -> Path:
    """Build a library for AArch64 from the installed sources, as on a machine with a card."""
    recipe = replace(library.recipe, flags=(*library.recipe.flags, *WARNINGS))
    return toolchain.build_many([toolchain.runtime(library.build, recipe, library.entry)])[0]


@pytest.mark.toolchain
@pytest.mark.parametrize("definitions", [(CHIP,), ()])
def test_the_libraries_of_the_aicpu_build_for_aarch64(
    toolchain: Toolchain, definitions: tuple[str, ...]
) -> None:
    """The toolchain refuses symbols of a newer C library than that of the recipe."""
    dispatcher, device = (
        build(toolchain, library)
        for library in device_libraries(aicpu_recipe("runtime"), *definitions)
    )
    assert symbols(device, "--defined-only", "aarch64-linux-gnu-nm") == {"pto_a2a3_serve"}
    assert symbols(dispatcher, "--defined-only", "aarch64-linux-gnu-nm") == DISPATCHER
    for library in (dispatcher, device):
        needed = symbols(library, "--undefined-only", "aarch64-linux-gnu-nm")
        silicon = {name for name in needed if name.startswith("silicon_")}
        assert needed - silicon <= FUNCTIONS
        assert bool(silicon) == (not definitions)
        assert ("dc\tcivac" in disassembly(library)) == bool(definitions)
    assert ("dc\tcvac" in disassembly(device)) == bool(definitions)
    assert ("cntvct_el0" in disassembly(device)) == bool(definitions)
    assert ("clock_gettime" in symbols(device, "--undefined-only", "aarch64-linux-gnu-nm")) == (
        not definitions
    )
    folder = b"/usr/lib64/aicpu_kernels/0/aicpu_kernels_device"
    assert (folder in dispatcher.read_bytes()) == bool(definitions)


@pytest.mark.toolchain
def test_a_symbol_of_a_newer_c_library_is_refused(toolchain: Toolchain, tmp_path: Path) -> None:
    """The C library of this machine has a version of dlopen() that a device may not have."""
    source = tmp_path / "newer.cpp"
    source.write_text(
        "#include <dlfcn.h>\n"
        'extern "C" __attribute__((visibility("default"))) void* entry() {\n'
        '  return dlopen("libm.so.6", RTLD_NOW);\n'
        "}\n"
    )
    library = DeviceLibrary("newer", "entry", DeviceBuild((source,)), aicpu_recipe("runtime"))
    with pytest.raises(CompileError, match=r"dlopen.*GLIBC_2\.34"):
        build(toolchain, library)


@pytest.mark.toolchain
def test_the_executor_builds_for_aarch64(toolchain: Toolchain) -> None:
    library = build(toolchain, native_executor(aicpu_recipe("runtime")))
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
