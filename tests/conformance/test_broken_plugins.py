"""The kit finds defects: each broken plugin fails the tests that are named here.

Without a defect, the same plugins pass all tests.
"""

# Invariant of this file: A core reads only the payload of its dispatch, and no other memory of the
# runtime.

# Invariant of this file: Each completion is polled exactly once.

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from pto_core import plugins
from pto_devkit.subjects import healthy_backend

BROKEN = Path(__file__).parent / "broken"
INLINE_BACKEND = Path(__file__).parents[1] / "native" / "inline_backend.cpp"
VARIANT = "aicpu_build_graph"

BACKEND_DEFECTS = {
    "loses_a_byte": {"test_memory_round_trip"},
    "forgets_leaks": {"test_leaks_are_reported"},
    "leaks": {"test_memory_of_a_run"},
    "skips_a_task": {"test_each_task_runs_once"},
    "runs_a_task_twice": {"test_each_task_runs_once"},
    "keeps_the_payload": {"test_payload_is_copied", "test_relative_arguments"},
    "reports_twice": {"test_completions_are_reported_once", "test_many_runs"},
    "ignores_the_seed": {"test_seeds_differ"},
    "has_an_unstable_trace": {"test_seed_repeats_trace"},
    "refuses_callbacks": {"test_callbacks", "test_kernel_faults"},
    "hides_callbacks": {"test_claims_agree"},
    "does_not_check": {"test_red_zones", "test_wrong_values_are_refused"},
    "hides_what_runs": {"test_activity_names_the_kernel"},
    "miscounts_bytes": {"test_counters"},
    "accepts_any_option": {"test_unknown_options_are_refused"},
    "hides_a_block": {"test_topology", "test_impossible_shapes_are_refused"},
    "hides_determinism": {"test_shape_is_deterministic"},
    "accepts_any_address": {"test_bad_addresses_are_refused"},
}

RUNTIME_DEFECTS = {
    "loses_an_edge": {"test_long_chain"},
    "accepts_a_self_edge": {"test_self_edge"},
    "runs_unpublished_work": {"test_unpublished_work"},
    "runs_a_task_twice": {"test_independent_tasks"},
    "forgets_the_first_error": {"test_first_error_wins"},
    "ignores_options": {"test_unknown_options_are_refused"},
    "knows_every_name": {"test_table"},
}

# For each defect, at least one of these tests must fail. Several tests may show a defect: tasks may
# run in the right order by chance although an edge is lost.
TENSOR_RUNTIME_DEFECTS = {
    "loses_an_edge": {"test_long_chain", "test_random_graphs"},
    "keeps_scopes_open": {"test_scopes_give_memory_back"},
    "gives_overlapping_buffers": {"test_allocated_buffers_are_apart"},
    "proves_no_deadlock": {"test_deadlock_is_proven"},
    "ignores_clusters": {"test_clusters"},
}
TENSOR_RUNTIMES = [
    record.name
    for record in plugins.installed("runtime")
    if "inferred_edges" in plugins.load_runtime(record.name).capabilities
]


@pytest.fixture(scope="module")
def build(tmp_path_factory, make_stranger) -> Callable[..., Path]:
    """Return a function that builds a library once; the environment selects its defect."""

    @functools.cache
    def make(source: Path, *flags: str) -> Path:
        return make_stranger(tmp_path_factory.mktemp("broken")).compile(source, *flags)

    return make


def broken_backend(build: Callable[..., Path]) -> Path:
    library = plugins.load_backend(healthy_backend()).library()
    return build(BROKEN / "broken_backend.cpp", f'-DPTO_WORKING_LIBRARY="{library}"')


def broken_variant(build: Callable[..., Path], source: str, variant: str) -> Path:
    library = plugins.load_runtime(variant).library()
    return build(
        BROKEN / source,
        f'-DPTO_WORKING_LIBRARY="{library}"',
        f'-DPTO_WORKING_VARIANT="{variant}"',
    )


def test_broken_backends_are_caught(stranger, build) -> None:
    working = plugins.load_backend(healthy_backend())
    stranger.install_backend("broken", broken_backend(build), set(working.capabilities))
    found = stranger.run_with_defects("BackendContract", BACKEND_DEFECTS, backend="broken")
    assert found.pop("nothing") == {}
    assert {defect: set(failed) for defect, failed in found.items()} == BACKEND_DEFECTS, found


OPEN_WITH_BLOCKS = """
import pto_core
with pto_core.open_device("broken") as device:
    print(device.blocks)
try:
    pto_core.open_device("broken", block_dim=24)
except pto_core.errors.UsageError as error:
    print(error)
"""


def test_the_core_reads_the_number_of_cores_from_the_backend(stranger, build, monkeypatch) -> None:
    working = plugins.load_backend(healthy_backend())
    library = broken_backend(build)
    monkeypatch.setenv("PTO_BREAK", "hides_a_block")
    stranger.install_backend("broken", library, set(working.capabilities))
    blocks, refusal = stranger.run_program(OPEN_WITH_BLOCKS).splitlines()
    assert blocks == "23"
    assert refusal.startswith("block_dim is 24, but this device has 23 blocks")


def test_broken_runtimes_are_caught(stranger, build) -> None:
    working = plugins.load_runtime(VARIANT)
    library = broken_variant(build, "broken_runtime.cpp", VARIANT)
    stranger.install_runtime("broken", library, set(working.capabilities))
    stranger.install_backend("inline", build(INLINE_BACKEND), {"callbacks"})
    found = stranger.run_with_defects(
        "RuntimeContract", RUNTIME_DEFECTS, runtime="broken", backend="inline"
    )
    assert found.pop("nothing") == {}
    assert {defect: set(failed) for defect, failed in found.items()} == RUNTIME_DEFECTS, found


@pytest.mark.parametrize("variant", TENSOR_RUNTIMES)
def test_broken_tensor_runtimes_are_caught(stranger, build, variant) -> None:
    working = plugins.load_runtime(variant)
    library = broken_variant(build, "broken_tensor_runtime.cpp", variant)
    stranger.install_runtime("broken", library, set(working.capabilities))
    found = stranger.run_with_defects(
        "RuntimeContract", TENSOR_RUNTIME_DEFECTS, runtime="broken", backend=healthy_backend()
    )
    assert found.pop("nothing") == {}
    assert found.keys() == TENSOR_RUNTIME_DEFECTS.keys()
    assert all(found.values()), found


@pytest.mark.parametrize(
    ("source", "table"),
    [
        ("broken_backend.cpp", BACKEND_DEFECTS),
        ("broken_runtime.cpp", RUNTIME_DEFECTS),
        ("broken_tensor_runtime.cpp", TENSOR_RUNTIME_DEFECTS),
    ],
)
def test_every_defect_has_a_test(source, table) -> None:
    defects = set(re.findall(r"  X\((\w+)\)", (BROKEN / source).read_text()))
    assert defects == {"nothing", *table}
