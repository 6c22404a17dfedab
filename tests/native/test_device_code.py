"""Code for the processor of a device: the sources of the variants, and orchestrations.

The sources come from the installed packages. The kit checks the symbols of the installed libraries
(test_device_rules).
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from pto_core import plugins
from pto_core.interfaces import OrchestrationBuild
from pto_core.toolchain.diagnosis import LibrarySymbols, read_symbols
from pto_devkit.device_code import FUNCTIONS

VARIANTS = tuple(record.name for record in plugins.installed("runtime"))
CROSS = "aarch64-linux-gnu-g++"
COMPILERS = ("g++", pytest.param(CROSS, marks=pytest.mark.toolchain))
# The newest versions that an orchestration may need: of the oldest C library for AArch64, and of
# the C++ library of GCC 7.3, with which the compiler of the vendor's toolkit is built.
CEILINGS = {"GLIBC": (2, 17), "GLIBCXX": (3, 4, 24), "CXXABI": (1, 3, 11), "GCC": (4, 3, 0)}
# The entry of an orchestration, and the calls that need the most functions, for each variant.
ENTRIES = {
    "host_build_graph": """
#include "runtime.h"
USE_HEADERS
extern "C" int build(Runtime* runtime, uint64_t* args, int count) {
  LOG_INFO("%d tasks", runtime->get_task_count());
  const int task = runtime->add_task(args, count, 0);
  USE_STRINGS
  return runtime->get_task(task) == nullptr;
}
""",
    "aicpu_build_graph": """
#include "runtime.h"
USE_HEADERS
extern "C" int build(Runtime* runtime) {
  void* memory = runtime->aicpu_build_api.device_malloc(64);
  runtime->publish_task(runtime->add_task(runtime->orch_args, 1, 0, CoreType::AIV, 0));
  USE_STRINGS
  return memory == nullptr;
}
""",
    "tensormap_and_ringbuffer": """
#include "pto_orchestration_api.h"
extern "C" PTO2OrchestrationConfig aicpu_orchestration_config(uint64_t*, int) {
  return PTO2OrchestrationConfig{1};
}
extern "C" void build(PTO2Runtime* rt, uint64_t* args, int count) {
  const uint64_t shape[2] = {16, 16};
  const uint64_t half[2] = {8, 16};
  const uint64_t none[2] = {0, 0};
  always_assert(count == 1);
  LOG_INFO(rt, "%d arguments", count);
  PTO2_SCOPE(rt) {
    Tensor in = make_tensor_external(reinterpret_cast<void*>(args[0]), shape, 2);
    Tensor part = in.view(half, none).transpose(0, 1);
    Tensor out = make_tensor(shape, 2);
    PTOParam params[] = {make_input_param(part), make_output_param(out)};
    pto2_rt_submit_task(rt, 0, PTO2_WORKER_VECTOR, params, 2);
  }
  USE_STRINGS
}
""",
}
USE_HEADERS = "#include <string>\n#include <vector>"
USE_STRINGS = """
  std::vector<std::string> names;
  for (int i = 0; i < 40; ++i) names.push_back("task " + std::to_string(i));
  if (names.back().size() > 10) names.clear();
"""
# The functions of other libraries that the wrappers use, apart from mem* and str*.
WRAPPER_FUNCTIONS = FUNCTIONS | {
    *("aligned_alloc", "free", "fprintf", "malloc", "snprintf", "stderr", "vsnprintf"),
    # operator new and delete, std::exception and std::runtime_error
    *("_Znwm", "_ZnwmRKSt9nothrow_t", "_ZSt7nothrow", "_ZdlPv", "_ZdlPvm", "_ZTISt9exception"),
    *("_ZTISt13runtime_error", "_ZNSt13runtime_errorC1EPKc", "_ZNSt13runtime_errorD1Ev"),
    # host_build_graph returns its tasks in a std::map and a std::vector
    *("_ZSt17__throw_bad_allocv", "_ZSt20__throw_length_errorPKc"),
    "_ZSt28__throw_bad_array_new_lengthv",
    "_ZSt29_Rb_tree_insert_and_rebalancebPSt18_Rb_tree_node_baseS0_RS_",
    "_ZSt18_Rb_tree_decrementPSt18_Rb_tree_node_base",
    "_ZSt18_Rb_tree_incrementPSt18_Rb_tree_node_base",
    "_ZSt9terminatev",
    # exceptions
    *("_Unwind_Resume", "__cxa_allocate_exception", "__cxa_begin_catch", "__cxa_end_catch"),
    *("__cxa_free_exception", "__cxa_rethrow", "__cxa_throw", "__gxx_personality_v0"),
    # needed by the compiler's start-up files
    *("_ITM_deregisterTMCloneTable", "_ITM_registerTMCloneTable", "__cxa_finalize"),
    "__gmon_start__",
}


def has_compiler(name: str) -> str:
    """Return the path of a compiler that .ci/install-toolchain installs."""
    found = shutil.which(name)
    assert found is not None, f"{name} is needed; .ci/install-toolchain installs it"
    return found


def compile_orchestration(
    build: OrchestrationBuild, entry: str, compiler: str, folder: Path
) -> LibrarySymbols:
    """Compile an orchestration by the recipe of its variant; return the library's symbols."""
    unit, library = folder / "unit.cpp", folder / "orchestration.so"
    unit.write_text(f'#define PTO_ORCHESTRATION_ENTRY build\n{entry}\n#include "{build.wrapper}"\n')
    command = [
        *(has_compiler(compiler), "-std=c++17", "-shared", *build.flags),
        *(*(f"-I{path}" for path in build.include_dirs), unit, "-o", library),
    ]
    subprocess.run(command, check=True)
    symbols = read_symbols(library)
    assert symbols is not None
    return symbols


def orchestration(variant: str, compiler: str, folder: Path, *, strings: bool) -> LibrarySymbols:
    """Compile the orchestration of a variant, with or without strings and vectors."""
    entry = ENTRIES[variant].replace("USE_HEADERS", USE_HEADERS if strings else "")
    build = plugins.load_runtime(variant).program_interfaces()[0].orchestration
    text = entry.replace("USE_STRINGS", USE_STRINGS if strings else "")
    return compile_orchestration(build, text, compiler, folder)


def test_every_installed_variant_has_an_entry_here() -> None:
    assert set(ENTRIES) == set(VARIANTS)


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_wrapper_has_no_thread_storage_and_listed_symbols(
    variant: str, compiler: str, tmp_path: Path
) -> None:
    symbols = orchestration(variant, compiler, tmp_path, strings=False)
    assert not symbols.has_thread_storage
    assert symbols.needed.keys() - WRAPPER_FUNCTIONS == set()
    assert len(symbols.exported) == 1


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("variant", VARIANTS)
def test_strings_and_vectors_stay_below_the_ceilings(
    variant: str, compiler: str, tmp_path: Path
) -> None:
    symbols = orchestration(variant, compiler, tmp_path, strings=True)
    assert not symbols.has_thread_storage
    versions = {version for version in symbols.needed.values() if version}
    assert any(version.startswith("GLIBCXX_") for version in versions)
    for version in versions:
        library, _, number = version.partition("_")
        assert tuple(map(int, number.split("."))) <= CEILINGS[library], version


# Invariant: A runtime variant needs no function of other libraries but mem* and str*, and has no
# thread-local storage.
@pytest.mark.toolchain
@pytest.mark.parametrize("variant", VARIANTS)
def test_installed_sources_build_for_the_aicpu(variant: str, tmp_path: Path) -> None:
    """The sources are one translation unit, as a backend compiles them."""
    build = plugins.load_runtime(variant).device_build()
    assert build is not None
    unit, library = tmp_path / "unit.cpp", tmp_path / "variant.so"
    unit.write_text("".join(f'#include "{source}"\n' for source in build.sources))
    command = [
        *(has_compiler(CROSS), f"-std={build.standard}", *build.flags, "-Wall", "-Wextra"),
        *("-Werror", "-shared", "-nostdlib", "-mno-outline-atomics"),
        *(*(f"-I{path}" for path in build.include_dirs), unit, "-o", library, "-lc", "-lgcc"),
    ]
    subprocess.run(command, check=True)
    symbols = read_symbols(library)
    assert symbols is not None
    assert symbols.needed.keys() <= FUNCTIONS
    assert not symbols.has_thread_storage
    assert symbols.exported == {"pto_runtime_entry"}
