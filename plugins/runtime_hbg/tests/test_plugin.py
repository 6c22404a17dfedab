"""The plugin objects: their properties, and published sources that compile with their headers."""

from __future__ import annotations

import subprocess
import tomllib
from pathlib import Path

import pytest

from pto_core.interfaces import API_VERSION, Runtime
from pto_runtime_hbg import aicpu_build_graph, host_build_graph
from pto_runtime_hbg.variants import BUILD_MODE, BuildGraphVariant

PACKAGE = Path(__file__).parents[1]
VARIANTS = (host_build_graph, aicpu_build_graph)
GOOD_ENTRIES = {
    "host_build_graph": [
        'extern "C" int build(Runtime* runtime, uint64_t* args, int arg_count) { return 0; }',
        "int build(Runtime*, uint64_t*, int) { return 0; }",
        'extern "C" void build(Runtime*, uint64_t*, int) {}',
        "static int build(Runtime*, uint64_t*, int) { return 0; }",
    ],
    "aicpu_build_graph": [
        'extern "C" int build(Runtime* runtime) { return runtime->orch_argc; }',
        "void build(Runtime*) {}",
    ],
}
FORWARD = "class Runtime; enum class CoreType : int32_t; struct Task; struct HostApi;"
BAD_ENTRIES = {
    "int build(int) { return 0; }": "must be callable as",
    "struct Odd {}; Odd build(%s) { return {}; }": "returns int (0 = success) or void",
}
COMPILERS = ["g++", pytest.param("clang++", marks=pytest.mark.toolchain)]
PARAMETERS = {"host_build_graph": "Runtime*, uint64_t*, int", "aicpu_build_graph": "Runtime*"}


def compile_entry(
    variant: BuildGraphVariant,
    folder: Path,
    source: str,
    compiler: str,
    standard: str,
    *,
    before: str = "",
    flags: tuple[str, ...] = ("-fsyntax-only",),
) -> subprocess.CompletedProcess[str]:
    build = variant.program_interfaces()[0].orchestration
    case = folder / "case.cpp"
    case.write_text(f'{before}#include "runtime.h"\n#include "common/core_type.h"\n{source}\n')
    unit = folder / "unit.cpp"
    unit.write_text(
        f'#define PTO_ORCHESTRATION_ENTRY build\n#include "{case}"\n#include "{build.wrapper}"\n'
    )
    command = [
        *(compiler, f"-std={standard}", "-Wall", "-Wextra", "-Wno-unused-parameter", "-Werror"),
        *(*(f"-I{path}" for path in build.include_dirs), str(unit), *flags),
    ]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.name)
class TestVariant:
    def test_is_a_healthy_runtime(self, variant: BuildGraphVariant) -> None:
        assert isinstance(variant, Runtime)
        assert variant.api_version == API_VERSION
        assert variant.health().ok
        assert variant.library().is_file()
        assert variant.program_interfaces()[0].orchestration.wrapper.is_file()

    def test_is_an_entry_point_under_its_name(self, variant: BuildGraphVariant) -> None:
        project = tomllib.loads((PACKAGE / "pyproject.toml").read_text())["project"]
        entry = project["entry-points"]["pto.runtimes"][variant.name]
        assert entry == f"pto_runtime_hbg:{variant.name}"

    @pytest.mark.parametrize("compiler", COMPILERS)
    @pytest.mark.parametrize("standard", ["c++17", "c++20", "c++2b"])
    def test_entries_compile(
        self, variant: BuildGraphVariant, standard: str, compiler: str, tmp_path: Path
    ) -> None:
        for source in GOOD_ENTRIES[variant.name]:
            outcome = compile_entry(variant, tmp_path, source, compiler, standard)
            assert outcome.returncode == 0, outcome.stderr

    @pytest.mark.parametrize("compiler", COMPILERS)
    def test_sources_may_declare_the_types_themselves(
        self, variant: BuildGraphVariant, compiler: str, tmp_path: Path
    ) -> None:
        declared = (
            "#include <cstdint>\n" + FORWARD + "\nint peek(Runtime* runtime, CoreType type);\n"
        )
        used = "int peek(Runtime*, CoreType type) { return type == CoreType::AIV; }\n"
        for source in GOOD_ENTRIES[variant.name]:
            text = f"{FORWARD}\n{source}\n{used}"
            outcome = compile_entry(variant, tmp_path, text, compiler, "c++17", before=declared)
            assert outcome.returncode == 0, outcome.stderr

    def test_a_library_shows_its_entry_only(
        self, variant: BuildGraphVariant, tmp_path: Path
    ) -> None:
        library = tmp_path / "case.so"
        build_flags = variant.program_interfaces()[0].orchestration.flags
        flags = ("-shared", "-static-libstdc++", *build_flags, "-o", str(library))
        source = GOOD_ENTRIES[variant.name][0]
        prints = "#include <iostream>\nvoid print() { std::cout << std::fixed << 2.5; }\n"
        outcome = compile_entry(variant, tmp_path, prints + source, "g++", "c++17", flags=flags)
        assert outcome.returncode == 0, outcome.stderr
        listed = subprocess.run(
            ["nm", "-D", "--defined-only", "--format=posix", library],
            check=True,
            capture_output=True,
            text=True,
        )
        names = [line.split()[0] for line in listed.stdout.splitlines()]
        assert names == [f"pto_{variant.name}_orchestrate"]

    def test_wrong_entries_are_refused_with_the_expected_form(
        self, variant: BuildGraphVariant, tmp_path: Path
    ) -> None:
        for source, expected in BAD_ENTRIES.items():
            text = source.replace("%s", PARAMETERS[variant.name])
            outcome = compile_entry(variant, tmp_path, text, "g++", "c++17")
            assert outcome.returncode != 0
            assert expected in outcome.stderr


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("standard", ["c++17", "c++20", "c++2b"])
def test_published_sources_compile_in_every_standard(
    tmp_path: Path, standard: str, compiler: str
) -> None:
    source = (Path(__file__).parent / "published" / "graph_names.cpp").read_text()
    outcome = compile_entry(host_build_graph, tmp_path, source, compiler, standard)
    assert outcome.returncode == 0, outcome.stderr


def test_build_mode_is_a_setting_of_aicpu_build_graph() -> None:
    assert host_build_graph.options() == ()
    assert aicpu_build_graph.options() == (BUILD_MODE,)
    assert BUILD_MODE.environment == "PTO_AICPU_BUILD_GRAPH_BUILD_MODE"
    assert [BUILD_MODE.parse(text) for text in ("0", "1")] == [0, 1]
    with pytest.raises(ValueError, match="first build, then schedule"):
        BUILD_MODE.parse("2")
