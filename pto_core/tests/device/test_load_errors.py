"""Libraries that the system cannot load: the error names the kernel, file, cause and remedy."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from pto_core import ChipCallable, CoreCallable, Device, KernelSource
from pto_core.errors import LoadError


def load_error(device: Device, binary: object) -> LoadError:
    chip = ChipCallable(lambda rt: None, {7: CoreCallable(binary, "aiv", name="add")})
    with pytest.raises(LoadError) as caught:
        device.prepare(chip)
    assert (caught.value.func_id, caught.value.kernel) == (7, "add")
    assert caught.value.message.startswith("kernel 'add' (func_id 7) cannot be loaded from ")
    return caught.value


def test_an_undefined_function(device: Device, tmp_path: Path) -> None:
    source = tmp_path / "add.cpp"
    source.write_text(
        "#include <cstdint>\n"
        "namespace far { int nowhere(long); }\n"
        'extern "C" void kernel_entry(int64_t* args) { args[0] = far::nowhere(2); }\n'
    )
    message = load_error(device, KernelSource(source)).message
    assert "far::nowhere(long) (symbol _ZN3far7nowhereEl), which no library defines" in message
    assert message.count(str(source)) == 1
    assert ".so" not in message
    assert message.endswith("define it in that source, or make it inline in a header")


@pytest.mark.parametrize("content", ["text that is long enough to be a header " * 3, ""])
def test_a_file_that_is_no_library(device: Device, tmp_path: Path, content: str) -> None:
    binary = tmp_path / "add.so"
    binary.write_text(content)
    message = load_error(device, binary).message
    assert message.count(str(binary)) == 1
    assert "the file is not a shared library for this machine" in message
    assert "as a KernelSource" in message


def test_a_file_that_does_not_exist(device: Device, tmp_path: Path) -> None:
    message = load_error(device, tmp_path / "add.so").message
    assert message.endswith("the file does not exist; pass the path of a shared library")


def test_an_orchestration_that_is_no_library(device: Device, tmp_path: Path) -> None:
    binary = tmp_path / "graph.so"
    binary.write_text("text that is long enough to be a header " * 3)
    with pytest.raises(LoadError, match=r"the orchestration cannot be loaded .*not a shared lib"):
        device.prepare(ChipCallable(binary))


def test_a_library_for_a_newer_standard_library(device: Device, tmp_path: Path) -> None:
    stub = tmp_path / "stub.cpp"
    stub.write_text('extern "C" void of_the_future() {}\n')
    versions = tmp_path / "versions"
    versions.write_text("GLIBCXX_3.4.99 { global: of_the_future; };\n")
    kernel = tmp_path / "add.cpp"
    kernel.write_text(
        'extern "C" void of_the_future();\n'
        'extern "C" void kernel_entry(long*) { of_the_future(); }\n'
    )
    newer, binary = tmp_path / "libstdc++.so.6", tmp_path / "add.so"
    script = f"-Wl,--version-script={versions}"
    shared = ("g++", "-shared", "-fPIC", "-nostdlib")
    made = (
        (*shared, stub, script, "-Wl,-soname,libstdc++.so.6", "-o", newer),
        (*shared, kernel, newer, "-o", binary),
    )
    for command in made:
        subprocess.run(command, check=True)
    message = load_error(device, binary).message
    assert "than this process: it needs GLIBCXX_3.4.99, which /" in message
    assert message.endswith("with -static-libstdc++, such as CXX='g++-15 -static-libstdc++'")


def test_a_library_for_a_newer_c_library(device: Device, tmp_path: Path) -> None:
    """Headers of glibc 2.38 use this function for strtoul; the C library here does not have it."""
    source = tmp_path / "add.cpp"
    source.write_text(
        "#include <cstdint>\n"
        'extern "C" unsigned long __isoc23_strtoul_of_2038(const char*);\n'
        'extern "C" void kernel_entry(int64_t* args) { args[0] = __isoc23_strtoul_of_2038(""); }\n'
    )
    message = load_error(device, KernelSource(source)).message
    assert "its compiler is for a newer C library than that of this process" in message
    assert "it uses __isoc23_strtoul_of_2038, which glibc 2." in message
    assert message.endswith("compile it with a compiler of this machine, such as CXX=g++")
