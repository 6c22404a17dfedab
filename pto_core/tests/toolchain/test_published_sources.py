"""Sources for another toolchain: hints, warnings, and the default entry of an orchestration."""

from __future__ import annotations

import pytest

from pto_core.errors import CompileError
from pto_core.interfaces import OrchestrationBuild
from pto_core.toolchain.compilers import gxx_advice, python_headers_advice

DEBIAN_12 = {"ID": "debian", "VERSION_CODENAME": "bookworm", "PRETTY_NAME": "Debian GNU/Linux 12"}
UBUNTU_24 = {"ID": "ubuntu", "ID_LIKE": "debian", "VERSION_CODENAME": "noble"}
MINT_22 = {"ID": "linuxmint", "VERSION_CODENAME": "wilma", "UBUNTU_CODENAME": "noble"}
FEDORA = {"ID": "fedora", "VERSION_ID": "42"}
BFLOAT16 = "#include <pto/pto-inst.hpp>\n{line}\n"


@pytest.fixture
def old_compiler(bench) -> str:
    """Return the command of a compiler that has no <stdfloat>."""
    bench.write("old/stdfloat", "#error no <stdfloat> here\n")
    script = bench.write("old-g++", f'#!/bin/sh\nexec g++ -I{bench.sources}/old "$@"\n')
    script.chmod(0o755)
    return str(script)


@pytest.fixture
def tile_library(bench):
    bench.write("isa/include/pto/pto-inst.hpp", "#include <cstdint>\nusing bfloat16_t = float;\n")
    return bench.sources / "isa"


def test_a_change_in_a_wrapper_script_builds_again(bench, kernel) -> None:
    script = bench.write("wrapper", '#!/bin/sh\nexec g++ "$@"\n')
    script.chmod(0o755)
    source = bench.write("one.cpp", kernel("1"))
    bench.build(source, cxx=str(script))
    script.write_text('#!/bin/sh\nexec g++ -ffunction-sections "$@"\n')
    bench.build(source, cxx=str(script))
    assert bench.states == ["started", "built"]


def test_a_tile_library_that_does_not_exist_is_named(bench) -> None:
    source = bench.write("one.cpp", "#include <pto/pto-inst.hpp>\n")
    gone = bench.sources / "gone"
    with pytest.raises(CompileError, match=f"PTO_ISA_ROOT is {gone}, which is not a folder: set"):
        bench.build(source, pto_isa_root=gone)
    gone.mkdir()
    with pytest.raises(CompileError, match=f"{gone}, which has no folder include/pto: set it"):
        bench.build(source, pto_isa_root=gone)
    (gone / "include" / "pto").mkdir(parents=True)
    with pytest.raises(CompileError, match=f"library in {gone} .* has no pto/pto-inst.hpp"):
        bench.build(source, pto_isa_root=gone)


def test_an_old_compiler_is_named_where_the_tile_library_does_not_compile(
    bench, kernel, old_compiler, tile_library
) -> None:
    source = bench.write("one.cpp", kernel("1", "#include <pto/pto-inst.hpp>"))
    bench.write("isa/include/pto/pto-inst.hpp", "auto tile = [] { return from_the_future; }();\n")
    with pytest.raises(CompileError) as caught:
        bench.build(source, pto_isa_root=tile_library, cxx=old_compiler)
    assert f"The error is in the kernel tile library ({tile_library})" in caught.value.message
    assert "g++ 13" in caught.value.message


@pytest.mark.parametrize("line", ["bfloat16_t value;", '#include "mine.h"'])
def test_bfloat16_in_half_precision_is_warned_of_at_every_start(
    bench, kernel, old_compiler, tile_library, capsys, line
) -> None:
    bench.write("mine.h", "using Element = bfloat16_t;\n")
    source = bench.write("one.cpp", kernel("1", BFLOAT16.format(line=line)))
    for state in ("built", "cached"):
        bench.build(source, pto_isa_root=tile_library, cxx=old_compiler)
        assert bench.states[-1] == state
        shown = capsys.readouterr().err
        assert "kernel one.cpp uses bfloat16" in shown
        assert "in half precision" in shown


@pytest.mark.parametrize("line", ["// bfloat16_t", "/* a\n bfloat16_t */", "float bfloat16_table;"])
def test_kernels_without_bfloat16_are_not_warned_of(
    bench, kernel, old_compiler, tile_library, capsys, line
) -> None:
    source = bench.write("one.cpp", kernel("1", BFLOAT16.format(line=line)))
    bench.build(source, pto_isa_root=tile_library, cxx=old_compiler)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("least", "release", "expected"),
    [
        (11, DEBIAN_12, "install g++ 11 or newer: `apt-get install g++`"),
        (13, UBUNTU_24, "install g++ 13 or newer: `apt-get install g++`"),
        (14, UBUNTU_24, "install g++ 14 or newer: `apt-get install g++-14`"),
        (14, MINT_22, "install g++ 14 or newer: `apt-get install g++-14`"),
        (
            13,
            DEBIAN_12,
            "the newest package of Debian GNU/Linux 12 is g++-12: use a newer release of the "
            "distribution, or a container, with g++ 13 or newer",
        ),
        (
            13,
            FEDORA,
            "install g++ 13 or newer, such as with `dnf install gcc-c++` if it is new enough",
        ),
        (13, {"ID": "unheard-of"}, "install g++ 13 or newer"),
        (13, {}, "install g++ 13 or newer"),
    ],
)
def test_only_packages_that_the_distribution_has_are_named(least, release, expected) -> None:
    assert gxx_advice(least, release) == expected


def test_headers_of_python_come_from_the_distribution_if_python_does() -> None:
    assert python_headers_advice("3.11", DEBIAN_12, "/usr") == "apt-get install python3.11-dev"
    assert python_headers_advice("3.13", FEDORA, "/usr") == "dnf install python3-devel"
    for release, prefix in ((DEBIAN_12, "/usr/local"), ({}, "/usr")):
        advice = python_headers_advice("3.12", release, prefix)
        assert advice == f"install the development files of the Python below {prefix}"


def test_the_default_entry_runs_if_the_named_entry_does_not_exist(bench, capsys) -> None:
    wrapper = bench.write("wrapper.hpp", "int (*entry)() = &::PTO_ORCHESTRATION_ENTRY;\n")
    build = OrchestrationBuild(include_dirs=(), wrapper=wrapper, default_entry="standard")
    source = bench.write("graph.cpp", "int standard() { return 0; }\nint other() { return 1; }\n")

    def made(entry: str):
        return bench.build_orchestration(source, entry, build)

    instead = [made("oter"), made("oter")]
    warning = f"{source} has no function 'oter', which is function_name in ORCHESTRATION; did you"
    shown = capsys.readouterr().err
    assert shown.count(f"{warning} mean 'other'?; standard runs instead") == 2
    assert made("standard").is_file()
    assert made("other") not in instead
    assert capsys.readouterr().err == ""
    source.write_text("int standard() { return 0; }\nint oter() { return 2; }\n")
    assert made("oter") not in instead
    assert capsys.readouterr().err == ""
    source.write_text("int nothing() { return 0; }\n")
    with pytest.raises(CompileError, match="has no function 'oter'"):
        made("oter")
    source.write_text("int standard() { return wrong; }\n")
    with pytest.raises(CompileError, match="wrong"):
        made("oter")
