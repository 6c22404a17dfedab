"""Code for cores: command lines, a missing toolkit, and a check of the sources by Clang.

The compiler of CANN is not part of the tests. A recording stand-in takes its place: it notes its
command line and writes an empty file. So these tests show which commands run, not what they do.
"""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from native_builds import tool

from pto_backend_a2a3.core_code import executor_build, executor_recipe, kernel_recipe
from pto_backend_a2a3.device_code import aicpu_recipe
from pto_core.config import load_core
from pto_core.errors import BackendUnavailableError
from pto_core.interfaces import DeviceBuild, abi_include_dir
from pto_core.toolchain import Toolchain

PACKAGE = Path(__file__).parents[1]
NATIVE = PACKAGE / "native"
EXAMPLES = PACKAGE.parents[1] / "examples"
EXAMPLE = EXAMPLES / "01_vector" / "kernels"
EXECUTOR = NATIVE / "device" / "chip_executor.cpp"
STAND_IN = r"""#!/bin/sh
# A recording stand-in for a program of CANN, made by a test. It compiles and links nothing.
case "$*" in
  *-dM*) echo '#define __clang__ 1'; exit ;;
  *-fsyntax-only*) exit ;;
esac
echo "${0##*/} $*" >> "${0%/*}/commands"
previous=
for word; do
  case $previous in -o) : > "$word" ;; -MF) echo "artefact: $word" > "$word" ;; esac
  previous=$word
done
"""
# The command lines of the public builds that the flags were compared with.
COMPILE = (
    "ccec -c -O3 -g -x cce -Wall -std=c++17 --cce-aicore-only --cce-aicore-arch={core} "
    "-mllvm -cce-aicore-stack-size=0x8000 -mllvm -cce-aicore-function-stack-size=0x8000 "
    "-mllvm -cce-aicore-record-overflow=false -mllvm -cce-aicore-addr-transform "
    "-mllvm -cce-aicore-dcci-insert-for-scalar=false"
)
PARTIAL_LINK = "ld.lld -r"
LINK_KERNEL = "ld.lld -e kernel_entry"
LINK_EXECUTOR = "ld.lld -m aicorelinux -Ttext=0 -static -n"
# What this project adds: no contraction, the attributes of the ABI header.
OURS = {"-ffp-contract=off", "-DPTO_AICORE"}


@pytest.fixture
def toolkit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with recording stand-ins for the programs of CANN, which is selected."""
    folder = tmp_path / "CANN of a test"
    (folder / "bin").mkdir(parents=True)
    for name in ("ccec", "ld.lld"):
        program = folder / "bin" / name
        program.write_text(STAND_IN)
        program.chmod(0o755)
    monkeypatch.delenv("ASCEND_TOOLKIT_HOME", raising=False)
    monkeypatch.setenv("ASCEND_HOME_PATH", str(folder))
    return folder


def toolchain(folder: Path) -> Toolchain:
    return Toolchain(load_core({"cache_dir": folder / "cache"}, environ={}))


def recorded(toolkit: Path) -> list[list[str]]:
    """Return the commands without files, include paths and the list of read files."""
    return [
        _flags_of(line.replace(str(toolkit), "TOOLKIT").split())
        for line in builds(toolkit / "bin" / "commands")
    ]


def builds(commands: Path) -> list[str]:
    """Return the recorded commands, without the questions for the search list of headers."""
    return [line for line in commands.read_text().splitlines() if " -E " not in line]


def _flags_of(words: list[str]) -> list[str]:
    with_file = ("-o", "-MT", "-MF")
    return [
        word
        for previous, word in zip(["", *words], words, strict=False)
        if word not in (*with_file, "-MD")
        and previous not in with_file
        and not word.startswith(("/", "-I"))
    ]


def same(command: Sequence[str], expected: str, *more: str) -> bool:
    """Return whether a command is the expected one, apart from the order and our own flags."""
    words = sorted(word for word in command if word not in OURS)
    return words == sorted([*expected.split(), *more])


@pytest.mark.parametrize(("kind", "core"), [("aic", "dav-c220-cube"), ("aiv", "dav-c220-vec")])
def test_the_commands_for_a_kernel_are_the_published_ones(
    toolkit: Path, tmp_path: Path, kind: str, core: str
) -> None:
    source = tmp_path / "add.cpp"
    source.write_text('extern "C" [aicore] void kernel_entry(long* args);\n')
    built = toolchain(tmp_path).build_kernel(source, kind, kernel_recipe(kind))
    compiled, linked = recorded(toolkit)
    assert same(compiled, COMPILE.format(core=core), "-DMEMORY_BASE")
    assert same(linked, LINK_KERNEL)
    assert set(compiled) >= OURS
    assert built.read_bytes() == b""


def test_the_commands_for_the_executor_are_the_published_ones(
    toolkit: Path, tmp_path: Path
) -> None:
    builder = toolchain(tmp_path)
    builder.build_many([builder.runtime(executor_build(), executor_recipe())])
    commands = recorded(toolkit)
    expected = (
        COMPILE.format(core="dav-c220-vec"),
        PARTIAL_LINK,
        COMPILE.format(core="dav-c220-cube"),
        PARTIAL_LINK,
        LINK_EXECUTOR,
    )
    for command, words in zip(commands, expected, strict=True):
        assert same(command, words)
    last = shlex.split(builds(toolkit / "bin" / "commands")[-1])
    assert [Path(word).name for word in last if word.startswith("/")][:2] == ["aic", "aiv"]


@pytest.mark.parametrize("kind", ["orchestration", "runtime"])
def test_the_compiler_of_the_toolkit_is_the_first_for_the_aicpu(
    toolkit: Path, tmp_path: Path, kind: str
) -> None:
    compiler = toolkit / "tools" / "hcc" / "bin" / "aarch64-target-linux-gnu-g++"
    compiler.parent.mkdir(parents=True)
    compiler.write_text(STAND_IN)
    compiler.chmod(0o755)
    source = tmp_path / "code.cpp"
    source.write_text("")
    builder = toolchain(tmp_path)
    builder.build_many([builder.runtime(DeviceBuild((source,), flags=()), aicpu_recipe(kind))])
    (command,) = builds(compiler.parent / "commands")
    words = _flags_of(command.replace(str(toolkit), "TOOLKIT").split())
    assert words[0] == "aarch64-target-linux-gnu-g++"
    assert {"-shared", "-fPIC", "-std=gnu++17"} <= set(words)
    assert "-mno-outline-atomics" not in words


def test_without_the_toolkit_the_error_names_the_folders_and_the_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ASCEND_HOME_PATH", raising=False)
    monkeypatch.setenv("ASCEND_TOOLKIT_HOME", str(tmp_path))
    for recipe in (executor_recipe, lambda: kernel_recipe("aic")):
        with pytest.raises(BackendUnavailableError) as caught:
            recipe()
        assert f"are not in {tmp_path} (ASCEND_TOOLKIT_HOME)" in str(caught.value)
        assert "install the CANN toolkit and source its set_env.sh" in str(caught.value)
        assert "or set ASCEND_HOME_PATH to it" in str(caught.value)


# The files of each half of the chip's code, with the kernels of the examples that a card can run.
FOR_A_CARD = ("01_vector", "03_tiled_gemm", "06_batch_paged_attention", "09_cube_vector_clusters")


def kernels(core_type: str) -> list[Path]:
    folders = [EXAMPLES / name / "kernels" for name in FOR_A_CARD]
    return [file for folder in folders for file in sorted(folder.glob(f"{core_type}*/*.cpp"))]


HALVES = {
    "CUBE": [EXECUTOR, *kernels("aic")],
    "VEC": [EXECUTOR, NATIVE / "device" / "probe_kernel.cpp", *kernels("aiv")],
}


def check_with_clang(half: str, sources: Sequence[Path]) -> bool:
    """Check syntax, types and address spaces; stand-ins take the place of intrinsics."""
    stand_ins = PACKAGE / "tests" / "stand_ins" / "aicore.hpp"
    command = [
        *(tool("clang++"), "-std=c++17", "-fsyntax-only", "-Wall", "-Wextra", "-Werror"),
        *("-DPTO_AICORE", f"-D__DAV_{half}__", "-include", stand_ins),
        *(f"-I{NATIVE}", f"-I{abi_include_dir()}", *sources),
    ]
    return subprocess.run(command, check=False).returncode == 0


@pytest.mark.toolchain
@pytest.mark.parametrize("half", HALVES)
def test_chip_code_has_no_error_that_clang_finds(half: str) -> None:
    assert check_with_clang(half, HALVES[half])


@pytest.mark.toolchain
def test_clang_refuses_a_pointer_without_its_address_space(tmp_path: Path) -> None:
    source = tmp_path / "wrong.cpp"
    text = (EXAMPLE / "aiv" / "add.cpp").read_text()
    source.write_text(text.replace("  __gm__ float* out =", "  float* out =", 1))
    assert not check_with_clang("VEC", [source])
