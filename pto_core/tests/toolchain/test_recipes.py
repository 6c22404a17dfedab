"""Recipes of a backend with its own compilers: steps, attributes, ceilings, and no ``$CXX``."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from pto_core.errors import CompileError
from pto_core.interfaces import BuildRecipe, DeviceBuild
from pto_core.toolchain import Toolchain
from pto_core.toolchain.diagnosis import read_symbols

OBJECT = ("-c", "-fPIC")
LINK = ("g++", "-shared", "{input}", "-o", "{output}")


def note(folder: Path, name: str) -> Path:
    """Write a compiler that notes in ``<name>.used`` that it compiled something."""
    script = folder / name
    script.write_text('#!/bin/sh\ncase "$*" in *one.cpp*) : > "$0.used" ;; esac\nexec g++ "$@"\n')
    script.chmod(0o755)
    return script


# Invariant: The compiler of a device's recipe is never replaced by the host compiler.
def test_the_host_compiler_does_not_replace_that_of_a_recipe(bench, kernel, tmp_path) -> None:
    own, host = note(tmp_path, "own-g++"), note(tmp_path, "host-g++")
    source = bench.write("one.cpp", kernel("1"))
    recipe = BuildRecipe(compilers=(str(own),), flags=("-shared", "-fPIC"))
    bench.build(source, recipe, cxx=str(host))
    assert (Path(f"{own}.used").exists(), Path(f"{host}.used").exists()) == (True, False)


def test_a_missing_toolkit_is_an_error_that_names_its_compilers(bench, kernel) -> None:
    source = bench.write("one.cpp", kernel("1"))
    recipe = BuildRecipe(compilers=("no-such-ccec", "no-such-bisheng"))
    with pytest.raises(CompileError, match="none was found of no-such-ccec, no-such-bisheng"):
        bench.build(source, recipe, cxx="g++")


def test_steps_run_after_the_compiler(bench, kernel, tmp_path) -> None:
    copy = tmp_path / "copy"
    copy.write_text('#!/bin/sh\ncp "$1" "$2"\nprintf extracted >> "$2"\n')
    copy.chmod(0o755)
    source = bench.write("one.cpp", kernel("1"))
    recipe = BuildRecipe(
        compilers=("g++",), flags=OBJECT, steps=(LINK, (str(copy), "{input}", "{output}"))
    )
    built = bench.build(source, recipe)
    assert built.read_bytes().endswith(b"extracted")
    symbols = read_symbols(built)
    assert symbols is not None
    assert "kernel_entry" in symbols.exported
    assert bench.leftovers() == []


def test_a_failing_step_is_a_compile_error(bench, kernel) -> None:
    source = bench.write("one.cpp", kernel("1"))
    link = (*LINK, "-lno_such_library")
    with pytest.raises(CompileError, match="no_such_library"):
        bench.build(source, BuildRecipe(compilers=("g++",), flags=OBJECT, steps=(link,)))
    assert bench.leftovers() == []


def test_other_steps_are_another_artefact(bench, kernel) -> None:
    source = bench.write("one.cpp", kernel("1"))
    first = bench.build(source, BuildRecipe(compilers=("g++",), flags=OBJECT, steps=(LINK,)))
    stripped = (*LINK, "-s")
    second = bench.build(source, BuildRecipe(compilers=("g++",), flags=OBJECT, steps=(stripped,)))
    assert first != second
    assert bench.states == ["started", "built"]


def test_attributes_reach_a_compiler_that_knows_them(bench) -> None:
    """A host compiler refuses [aicore], so it shows whether the attribute was removed."""
    source = bench.write(
        "one.cpp", 'extern "C" [aicore] void kernel_entry(long* args) { args[0] = 1; }\n'
    )
    flags = ("-shared", "-fPIC")
    bench.build(source, BuildRecipe(compilers=("g++",), flags=flags))
    with pytest.raises(CompileError):
        bench.build(source, BuildRecipe(compilers=("g++",), flags=flags, keeps_attributes=True))


def test_a_symbol_above_the_ceiling_is_named(bench) -> None:
    source = bench.write(
        "one.cpp",
        "#include <cstdio>\n"
        'extern "C" void kernel_entry(long* args) { std::printf("%ld", args[0]); }\n',
    )
    assert bench.build(source, BuildRecipe(ceilings={"GLIBC": "2.17"})).is_file()
    with pytest.raises(
        CompileError, match=r"of version GLIBC_2\.\d+.*, and the device has GLIBC up to 2\.1;"
    ):
        bench.build(source, BuildRecipe(ceilings={"GLIBC": "2.1"}))


def test_a_runtime_variant_is_one_translation_unit(bench, tmp_path) -> None:
    first = bench.write("first.cpp", "static int shared() { return 7; }\n")
    second = bench.write(
        "second.cpp",
        '#include "name.h"\n'
        'extern "C" __attribute__((visibility("default"))) int pto_runtime_entry() '
        "{ return shared() + EXTRA; }\n",
    )
    bench.write("include/name.h", "enum { EXTRA = 1 };\n")
    build = DeviceBuild(sources=(first, second), include_dirs=(bench.sources / "include",))
    toolchain = Toolchain(bench.config())
    (library,) = toolchain.build_many([toolchain.runtime(build, BuildRecipe())])
    program = f"import ctypes; print(ctypes.CDLL({str(library)!r}).pto_runtime_entry())"
    done = subprocess.run(["python3", "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "8\n"
