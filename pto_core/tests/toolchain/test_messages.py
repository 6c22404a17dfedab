"""The error of every source that cannot be built states cause, place and remedy."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from pto_core.errors import CompileError, UsageError
from pto_core.interfaces import BuildRecipe, OrchestrationBuild
from pto_core.toolchain import Toolchain, candidates, find_compiler
from pto_core.toolchain.compilers import missing_part
from pto_core.toolchain.diagnosis import LibrarySymbols, missing_symbol_error, read_symbols


def refused(bench, text: str, name: str = "broken.cpp") -> CompileError:
    with pytest.raises(CompileError) as caught:
        bench.build(bench.write(name, text))
    assert bench.leftovers() == []
    return caught.value


def test_error_has_file_line_and_the_message_of_the_compiler(bench) -> None:
    error = refused(
        bench, '#include <cstdint>\n\nextern "C" void kernel_entry(int64_t*) { nope(); }'
    )
    source = str(bench.sources / "broken.cpp")
    assert (error.source, error.line) == (source, 3)
    assert f"{source}:3: " in error.message
    assert "nope" in error.output
    assert error.output.strip().splitlines()[0] in error.message
    assert error.command.startswith(error.compiler.split(" ")[0])
    assert error.exit_code == 3


@pytest.mark.parametrize(
    ("line", "name", "when"),
    [
        ("void f(const ChipTaskArgs& args);", "ChipTaskArgs", "August 2026"),
        ("void f(const L2TaskArgs& args);", "L2TaskArgs", "June 2026"),
        ("int x = rt_submit_aiv_task(0, 1);", "rt_submit_aiv_task", "April to August 2026"),
        ('#include "intrinsic.h"', "intrinsic.h", "April to August 2026"),
        ("TensorCreateInfo info;", "TensorCreateInfo", "March 2026 or later"),
        ("void f(PTO2Runtime* rt);", "PTO2Runtime", "March 2026"),
        ("struct MixedKernels {}; int x = nope;", None, None),
        ("struct CoreTaskArgs {}; CoreTaskArg x;", None, None),  # the compiler suggests the name
    ],
)
def test_a_source_of_another_published_interface_is_recognised(bench, line, name, when) -> None:
    message = refused(bench, f"{line}\n").message
    expected = f"This source is written for the interface of {when} ({name}). That of August"
    assert (expected in message) == (name is not None)


def test_notes_about_our_own_flags_are_left_out(bench) -> None:
    source = bench.write("broken.cpp", "nope\n")
    flags = ("-Wno-attributes-of-the-future", "-O0")
    with pytest.raises(CompileError) as caught:
        bench.build(source, BuildRecipe(flags=flags))
    assert "broken.cpp:1" in caught.value.message
    assert "unrecognized command-line option" not in caught.value.message


def test_error_in_a_header_names_the_header(bench) -> None:
    header = bench.write("wrong.h", "\n\nint x = ;\n")
    error = refused(bench, '#include "wrong.h"\n')
    assert (error.source, error.line) == (str(header), 3)


def test_error_in_an_orchestration_is_on_the_users_line(bench) -> None:
    wrapper = bench.write("wrapper.hpp", "int (*entry)() = &::PTO_ORCHESTRATION_ENTRY;\n")
    build = OrchestrationBuild(include_dirs=(), wrapper=wrapper)
    source = bench.write("graph.cpp", "int graph() {\n  return wrong;\n}\n")
    with pytest.raises(CompileError) as caught:
        bench.build_orchestration(source, "graph", build)
    assert (caught.value.source, caught.value.line) == (str(source), 2)
    source.write_text("int graph() { return 0; }\n")
    with pytest.raises(CompileError) as caught:
        bench.build_orchestration(source, "grph", build)
    assert caught.value.message == (
        f"{source} has no function 'grph', which is function_name in ORCHESTRATION; "
        "did you mean 'graph'?"
    )
    assert caught.value.command.endswith(f"-o artefact.so {source}")
    assert bench.build_orchestration(source, "graph", build).is_file()


def test_orchestration_in_a_path_with_a_quote(bench) -> None:
    build = OrchestrationBuild(include_dirs=(), wrapper=Path("none"))
    source = bench.write('say "hello"/graph.cpp', "")
    with pytest.raises(UsageError, match=r"say \"hello\".*#include cannot name; rename"):
        bench.build_orchestration(source, "graph", build)


def test_orchestration_without_a_name(bench) -> None:
    build = OrchestrationBuild(include_dirs=(), wrapper=Path("none"))
    source = bench.write("graph.cpp", "")
    with pytest.raises(UsageError, match="function_name"):
        bench.build_orchestration(source, None, build)


def test_all_are_tried_and_the_first_in_order_is_reported(bench, kernel) -> None:
    sources = [
        bench.write("a.cpp", kernel("1")),
        bench.write("b.cpp", "first error"),
        bench.write("c.cpp", "second error"),
    ]
    toolchain = Toolchain(bench.config(jobs=2), bench.events.append)
    requests = [toolchain.kernel(source, "aiv", BuildRecipe()) for source in sources]
    with pytest.raises(CompileError, match=r"kernel b\.cpp"):
        toolchain.build_many(requests)
    assert sorted(state for state in bench.states if state != "started") == [
        "built",
        "failed",
        "failed",
    ]


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ('extern "C" void other(long*) {}', "it exports other"),
        ("void kernel_entry(long*) {}", 'add extern "C"'),
        ('extern "C" { static void kernel_entry(long*) {} }', "it exports nothing"),
    ],
)
def test_missing_kernel_entry(bench, text: str, hint: str) -> None:
    error = refused(bench, text)
    assert "broken.cpp exports no kernel_entry" in error.message
    assert hint in error.message
    assert 'extern "C" void kernel_entry(int64_t* args)' in error.message


@pytest.mark.parametrize(
    ("header", "major"), [("stdfloat", 13), ("print", 14), ("generator", 14), ("mdspan", 16)]
)
def test_missing_library_header_names_a_compiler_that_has_it(header: str, major: int) -> None:
    text = f"k.cpp:1:10: fatal error: {header}: No such file or directory\n"
    assert missing_part(text) == (f"<{header}>", major)
    assert missing_part(f"k.cpp:1:10: fatal error: '{header}' file not found\n") == (
        f"<{header}>",
        major,
    )


def test_newer_library_than_the_compiler_has(bench) -> None:
    absent = bench.write("absent.cpp", "#include <inplace_vector_of_the_future>\n")
    with pytest.raises(CompileError, match="inplace_vector_of_the_future"):
        bench.build(absent)
    compiler = next(candidates(bench.config()))
    if compiler.family == "gcc" and compiler.major < 16:
        error = refused(bench, "#include <mdspan>\n")
        assert "<mdspan> needs g++ 16 or newer" in error.message
        assert "CXX" in error.message


def test_header_of_the_tile_library(bench) -> None:
    error = refused(bench, "#include <pto/pto-inst.hpp>\n")
    assert "PTO_ISA_ROOT" in error.message


def test_tile_library_of_the_configuration(bench, kernel) -> None:
    bench.write("isa/include/pto/pto-inst.hpp", "#define TILES 16\n")
    source = bench.write("one.cpp", kernel("TILES", "#include <pto/pto-inst.hpp>"))
    assert bench.build(source, pto_isa_root=bench.sources / "isa").is_file()


def test_missing_source(bench) -> None:
    with pytest.raises(UsageError, match="does not exist"):
        bench.build(bench.sources / "gone.cpp")
    with pytest.raises(UsageError, match="is a folder"):
        bench.build(bench.sources)


@pytest.mark.parametrize("command", ["g++-not-there", 'g++ "'])
def test_unknown_compiler_is_an_error_that_names_the_setting(bench, kernel, command: str) -> None:
    source = bench.write("one.cpp", kernel("1"))
    with pytest.raises(CompileError, match=rf"{re.escape(repr(command))}.*argument"):
        bench.build(source, cxx=command)


def test_no_compiler_has_the_standard(bench, kernel, monkeypatch) -> None:
    source = bench.write("one.cpp", kernel("1"))
    monkeypatch.setenv("PATH", str(bench.sources))
    with pytest.raises(CompileError, match=r"no C\+\+ compiler here accepts c\+\+26"):
        bench.build(source, BuildRecipe(standard="c++26"))


def test_the_compiler_is_queried_once(bench, monkeypatch) -> None:
    first = find_compiler("g++", bench.cache)
    assert first is not None
    assert first.family == "gcc"
    assert first.spelling("c++17") == "c++17"
    monkeypatch.setattr("subprocess.run", None)
    assert find_compiler("g++", bench.cache) == first


def test_compilers_with_other_flags_are_other_compilers(bench) -> None:
    first = find_compiler("g++ -DVALUE=1", bench.cache)
    second = find_compiler("g++ -DVALUE=2", bench.cache)
    assert first is not None
    assert second is not None
    assert (first.command[1:], second.command[1:]) == (("-DVALUE=1",), ("-DVALUE=2",))
    assert first.identity != second.identity


def test_the_first_failure_in_the_given_order_is_raised(bench) -> None:
    """The compiler of the first source fails after that of the second one."""
    script = bench.write(
        "my-g++",
        "#!/bin/sh\n"
        'case "$*" in\n'
        '  *first.cpp*) while [ ! -e "$0.ended" ]; do sleep 0.05; done; exec g++ "$@" ;;\n'
        '  *second.cpp*) g++ "$@"; code=$?; : >"$0.ended"; exit $code ;;\n'
        '  *) exec g++ "$@" ;;\n'
        "esac\n",
    )
    script.chmod(0o755)
    toolchain = Toolchain(bench.config(cxx=str(script), jobs=2))
    requests = [
        toolchain.kernel(bench.write(name, "wrong;\n"), "aiv", BuildRecipe())
        for name in ("first.cpp", "second.cpp")
    ]
    with pytest.raises(CompileError) as caught:
        toolchain.build_many(requests)
    assert caught.value.source == str(requests[0].source)


def test_a_replaced_compiler_is_queried_again(bench, kernel) -> None:
    script = bench.write("my-g++", '#!/bin/sh\nexec g++ "$@"\n')
    script.chmod(0o755)
    source = bench.write("one.cpp", kernel("VALUE"))
    host = bench.build.__defaults__[0]
    bench.build(source, replace(host, definitions=("VALUE=1",)), cxx=str(script))
    script.write_text('#!/bin/sh\nexec g++ -DEXTRA=1 "$@"\n')
    bench.build(source, replace(host, definitions=("VALUE=1",)), cxx=str(script))
    assert bench.states == ["started", "built"]


def test_symbols_of_a_file_that_is_no_library(tmp_path) -> None:
    for content in (
        b"",
        b"#!/bin/sh\n",
        b"\x7fELF\x02\x01" + b"\0" * 40,
        b"\x7fELF\x02\x01\xff" * 99,
    ):
        path = tmp_path / "file"
        path.write_bytes(content)
        assert read_symbols(path) in (None, LibrarySymbols(frozenset(), {}, False))


def test_missing_symbol_error_lists_few_names(bench) -> None:
    toolchain = Toolchain(bench.config())
    request = toolchain.kernel(bench.write("k.cpp", ""), "aiv", BuildRecipe())
    compiler = next(candidates(bench.config()))
    names = frozenset(f"name{i}" for i in range(100))
    assert len(missing_symbol_error(request, names, compiler).message) < 400


def test_a_line_break_in_a_path_is_refused(bench, kernel) -> None:
    source = bench.write("two\nlines/one.cpp", kernel("1"))
    with pytest.raises(UsageError, match="has a line break; rename the file or its folder"):
        bench.build(source)
