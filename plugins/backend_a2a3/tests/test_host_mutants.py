"""Plant faults in native/host; the tests on the fake driver must catch each one."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from native_builds import NativeBuild, tool

PACKAGE = Path(__file__).parents[1]
HOST = PACKAGE / "native" / "host"
ROOT = PACKAGE.parents[1]
INCLUDES = (HOST, PACKAGE / "native", ROOT / "pto_core" / "include")

# Each mutant: program and test that catch it, file in native/host/life, text, replacement.
MUTANTS = {
    "the logical number of a device for its registers": (
        "hardware_test",
        "the_hal_receives_the_number_of_the_driver",
        "card.cpp",
        "{kHalCoreRegisters, card.driver_device()}",
        "{kHalCoreRegisters, static_cast<uint32_t>(card.session().device())}",
    ),
    "the logical number of a device for its units": (
        "hardware_test",
        "the_hal_receives_the_number_of_the_driver",
        "card.cpp",
        "function(card.driver_device(), kHalModuleAicpu",
        "function(static_cast<uint32_t>(card.session().device()), kHalModuleAicpu",
    ),
    "the logical number of a device for its file": (
        "hardware_test",
        "files_on_the_device_have_the_number_of_the_driver",
        "aicpu.cpp",
        "block.device = card_.driver_device();",
        "block.device = static_cast<uint64_t>(card_.session().device());",
    ),
    "a forced reset without a synchronisation": (
        "card_test",
        "the_first_failure_is_kept_and_a_forced_reset_makes_the_device_usable",
        "session.cpp",
        "    synchronise(kSettleMs);\n",
        "",
    ),
    "the stream of the cores is kept": (
        "card_test",
        "an_old_stream_runs_old_code",
        "card.cpp",
        "std::exchange(cores, renewed)",
        "renewed",
    ),
    "a stream of the cores is destroyed while it works": (
        "card_test",
        "a_core_stream_is_renewed_after_its_last_operation",
        "card.cpp",
        "  if (status == PTO_OK) status = synchronise(cores, error);\n",
        "",
    ),
    "new code of a kernel is not noticed": (
        "on_fake_driver",
        "linked_code_runs_where_it_was_uploaded_on_a_new_stream",
        "kernels.cpp",
        "  has_new_code_ = true;\n",
        "",
    ),
    "code goes where other code was": (
        "on_fake_driver",
        "linked_code_runs_where_it_was_uploaded_on_a_new_stream",
        "kernels.cpp",
        "  blocks_.push_back(block);\n",
        "  memory.free(block, nullptr);\n",
    ),
    "relocations are not looked for": (
        "linked_code_test",
        "relocations_that_are_not_applied_are_refused",
        "kernels.cpp",
        "  if (status == PTO_OK) status = elf.check_relocations(index, error);\n",
        "",
    ),
    "relocations of loaded sections only": (
        "linked_code_test",
        "relocations_that_are_not_applied_are_refused",
        "kernels.cpp",
        "one.sh_info == code || (one.sh_flags",
        "(code == 0 && one.sh_info == code) || (one.sh_flags",
    ),
}


def build_with(build: Path, program: str, source: Path, folder: Path) -> Path:
    """Link a test program with another object for one source of the host."""
    compiler = tool("g++")
    planted = folder / "planted.o"
    includes = [f"-I{path}" for path in INCLUDES]
    subprocess.run(
        [compiler, "-std=gnu++20", "-O1", *includes, "-c", source, "-o", planted], check=True
    )
    objects = (build / "native" / "host" / "CMakeFiles" / "pto_backend_a2a3_host.dir").rglob("*.o")
    others = [path for path in objects if path.name != f"{source.name}.o"]
    test = build / "native" / "host" / "tests" / "CMakeFiles" / f"{program}.dir"
    linked = folder / program
    subprocess.run(
        [compiler, "-pthread", *others, planted, test / f"{program}.cpp.o", "-ldl", "-o", linked],
        check=True,
    )
    return linked


@pytest.mark.toolchain
@pytest.mark.parametrize("mutant", [*MUTANTS, None])
def test_a_test_on_the_fake_driver_catches_a_mutant(
    native_build: NativeBuild, tmp_path: Path, mutant: str | None
) -> None:
    """Without a mutant, the program that was linked in this way passes."""
    program, test, file, text, replacement = MUTANTS[mutant or next(iter(MUTANTS))]
    code = (HOST / "life" / file).read_text()
    assert code.count(text) == 1
    source = tmp_path / file
    source.write_text(code.replace(text, replacement) if mutant else code)
    build = native_build(PACKAGE, "CMAKE_UNITY_BUILD=OFF", target=program)
    linked = build_with(build, program, source, tmp_path)
    command = [linked, test]
    if program == "on_fake_driver":
        command.insert(1, native_build(PACKAGE.parent / "runtime_hbg"))
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    failures = re.findall(r"^\S+\.[ch]pp:\d+: ", done.stderr, re.MULTILINE)
    assert bool(failures) == bool(done.returncode) == bool(mutant), done.stderr
