"""Test the plugin object: properties, settings, and sources that compile with its headers."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

import pto_runtime_pto2
from pto_core.config import load_core
from pto_core.errors import CompileError
from pto_core.interfaces import API_VERSION, BuildRecipe, Option, Runtime
from pto_core.toolchain import Toolchain
from pto_runtime_pto2 import plugin

PACKAGE = Path(__file__).parents[1]
PUBLISHED = Path(__file__).with_name("published")
NATIVE_ENTRIES = PACKAGE / "native" / "tests" / "tensor_calls.cpp"
ENTRIES = {
    "vector": "aicpu_orchestration_entry",
    "paged_attention": "aicpu_orchestration_entry",
    "clusters": "aicpu_orchestration_entry",
    "tensor_names": "aicpu_orchestration_entry",
    "declarations": "my_entry",
}
OPTIONS = {option.key: option for option in plugin.options()}
API = '#include "pto_orchestration_api.h"\n'
RT = "PTO2Runtime* rt, uint64_t* args, int arg_count"
GOOD_ENTRIES = [
    f'extern "C" void build({RT}) {{}}',
    f'extern "C" int build({RT}) {{ return arg_count; }}',
    "static void build(PTO2Runtime*, const uint64_t*, int) {}",
    "bool build(PTO2Runtime*, uint64_t*, int32_t) { return false; }",
    "static PTO2OrchestrationConfig aicpu_orchestration_config(const uint64_t*, int64_t) {\n"
    "  return {0};\n}\nstatic void build(PTO2Runtime*, uint64_t*, int) {}",
]
BAD_ENTRIES = {
    "int build(int) { return 0; }": "must be callable as",
    f"struct Odd {{}}; Odd build({RT}) {{ return {{}}; }}": "returns int (0 = success) or void",
}
COMPILERS = ["g++", pytest.param("clang++", marks=pytest.mark.toolchain)]

Build = Callable[..., Path]


@pytest.fixture
def build(tmp_path: Path, shared_cache: Path) -> Build:
    """Return a function that builds an orchestration from a file or a text, as a case does."""

    def make(source: Path | str, entry: str | None = "build", **settings: object) -> Path:
        if isinstance(source, str):
            path = tmp_path / "case.cpp"
            path.write_text(API + source + "\n")
            source = path
        config = load_core({"cache_dir": shared_cache, **settings}, environ={})
        toolchain, build = Toolchain(config), plugin.program_interfaces()[0].orchestration
        return toolchain.build_many([toolchain.orchestration(source, entry, build)])[0]

    return make


def exports(library: Path) -> set[str]:
    listed = subprocess.run(
        ["nm", "-D", "--defined-only", "--format=posix", library],
        check=True,
        capture_output=True,
        text=True,
    )
    return {line.split()[0] for line in listed.stdout.splitlines()}


def test_it_is_a_runtime() -> None:
    assert isinstance(plugin, Runtime)
    assert plugin.name == "tensormap_and_ringbuffer"
    assert plugin.api_version == API_VERSION
    assert plugin.capabilities == {"inferred_edges", "scopes"}
    assert plugin.library().parent == Path(pto_runtime_pto2.__file__).parent.resolve()


def test_both_names_lead_to_it() -> None:
    project = tomllib.loads((PACKAGE / "pyproject.toml").read_text())["project"]
    value = "pto_runtime_pto2:plugin"
    names = {"tensormap_and_ringbuffer": value, "pto2": value}
    assert project["entry-points"]["pto.runtimes"] == names


def test_settings_have_the_published_names_and_defaults() -> None:
    described = {
        key: (option.native, option.variable, option.default) for key, option in OPTIONS.items()
    }
    assert described == {
        "pto2.task_window": ("task_window", "PTO2_RING_TASK_WINDOW", (65536,) * 4),
        "pto2.heap": ("heap", "PTO2_RING_HEAP", (2**30,) * 4),
        "pto2.dep_pool": ("dep_pool", "PTO2_RING_DEP_POOL", (65536,) * 4),
        "pto2.ready_queue_shards": ("ready_queue_shards", "PTO2_READY_QUEUE_SHARDS", 3),
        "pto2.tensor_map_pool": ("tensor_map_pool", "PTO_PTO2_TENSOR_MAP_POOL", 65536),
    }


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("pto2.task_window", "16", (16,) * 4),
        ("pto2.task_window", "4, 8,16,0x20", (4, 8, 16, 32)),
        ("pto2.heap", "64K", (65536,) * 4),
        ("pto2.heap", "1024,1M,2g,4GiB", (1024, 2**20, 2**31, 2**32)),
        ("pto2.heap", "1500", (1024,) * 4),
        ("pto2.dep_pool", "16", (16,) * 4),
        ("pto2.ready_queue_shards", "1", 1),
        ("pto2.tensor_map_pool", "16", 16),
    ],
)
def test_settings_take_one_value_or_four(key: str, text: str, value: object) -> None:
    assert OPTIONS[key].parse(text) == value


@pytest.mark.parametrize(
    ("key", "text", "expected"),
    [
        ("pto2.task_window", "3", "a power of two, at least 4"),
        ("pto2.task_window", "100", "a power of two, at least 4"),
        ("pto2.task_window", "many", "a power of two, at least 4"),
        ("pto2.task_window", "16,16", "one value, or 4 values separated by commas"),
        ("pto2.heap", "1023", "at least 1024"),
        ("pto2.heap", "-1", "a size in bytes such as"),
        ("pto2.dep_pool", "4", "from 16"),
        ("pto2.dep_pool", "16,16,16,15", "from 16"),
        ("pto2.ready_queue_shards", "0", "from 1"),
        ("pto2.tensor_map_pool", "1,1,1,1", "a whole number"),
    ],
)
def test_settings_say_what_they_expect(key: str, text: str, expected: str) -> None:
    with pytest.raises(ValueError, match=re.escape(expected)):
        OPTIONS[key].parse(text)


def limits_of_the_library() -> dict[str, int]:
    text = (PACKAGE / "native" / "src" / "options.hpp").read_text()
    found = re.findall(r"(k\w+) = (?:uint64_t\{1\} << )?(\d+);", text)
    shifted = set(re.findall(r"(k\w+) = uint64_t\{1\} <<", text))
    return {name: 2 ** int(value) if name in shifted else int(value) for name, value in found}


def test_the_library_has_the_same_limits() -> None:
    limits = limits_of_the_library()

    def is_taken(option: Option, value: int) -> bool:
        try:
            option.parse(str(value))
        except ValueError:
            return False
        return True

    for key, least, most in [
        ("pto2.task_window", limits["kMinWindow"], limits["kMaxWindow"]),
        ("pto2.heap", limits["kMinHeap"], limits["kMaxHeap"]),
        ("pto2.dep_pool", limits["kMinEdges"], limits["kMaxEdges"]),
        ("pto2.ready_queue_shards", 1, limits["kMaxShards"]),
        ("pto2.tensor_map_pool", limits["kMinMapEntries"], limits["kMaxMapEntries"]),
    ]:
        option = OPTIONS[key]
        taken = [is_taken(option, value) for value in (least - 1, least, most, 2 * most)]
        assert taken == [False, True, True, False], key


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("name", ENTRIES)
def test_published_sources_compile_unmodified(build: Build, name: str, compiler: str) -> None:
    entry = None if name != "declarations" else ENTRIES[name]
    library = build(PUBLISHED / f"{name}.cpp", entry, cxx=compiler)
    assert exports(library) == {"pto2_orchestrate"}


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("standard", ["c++17", "c++20", "c++2b"])
@pytest.mark.parametrize("name", ENTRIES)
def test_published_sources_compile_in_every_standard(
    tmp_path: Path, name: str, standard: str, compiler: str
) -> None:
    assert shutil.which(compiler), f"{compiler} is missing; install the toolchain profile"
    made = plugin.program_interfaces()[0].orchestration
    unit = tmp_path / "unit.cpp"
    unit.write_text(
        f"#define PTO_ORCHESTRATION_ENTRY {ENTRIES[name]}\n"
        f'#include "{PUBLISHED / name}.cpp"\n#include "{made.wrapper}"\n'
    )
    command = [
        *(compiler, f"-std={standard}", "-fsyntax-only", "-Wall", "-Wextra", "-Werror"),
        *("-Wno-unused-parameter", *(f"-I{path}" for path in made.include_dirs), str(unit)),
    ]
    outcome = subprocess.run(command, capture_output=True, text=True, check=False)
    assert outcome.returncode == 0, outcome.stderr


def test_entries_may_be_of_any_kind(build: Build) -> None:
    for source in GOOD_ENTRIES:
        assert exports(build(source)) == {"pto2_orchestrate"}


@pytest.mark.parametrize("source", BAD_ENTRIES)
def test_wrong_entries_are_refused_with_the_expected_form(build: Build, source: str) -> None:
    with pytest.raises(CompileError, match=re.escape(BAD_ENTRIES[source])):
        build(source)


def test_kernels_read_tensors_with_nothing_but_the_runtimes_headers(shared_cache: Path) -> None:
    config = load_core({"cache_dir": shared_cache}, environ={})
    toolchain = BuildRecipe(flags=("-O2", "-fpermissive"), definitions=("__CPU_SIM",))
    library = Toolchain(config).build_kernel(
        PUBLISHED / "kernel.cpp",
        "aiv",
        toolchain,
        plugin.program_interfaces()[0].kernel_include_dirs,
    )
    assert "kernel_entry" in exports(library)
