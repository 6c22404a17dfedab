"""Every example runs as its README says: each case, under each runtime it supports."""

from __future__ import annotations

import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pto_core.cases import run_case

EXAMPLES = Path(__file__).parents[1] / "examples"
README_LINES_MAX = 40

BUILD_GRAPH = ("host_build_graph", "aicpu_build_graph")
RUNTIMES = {
    "01_vector": BUILD_GRAPH,
    "02_vector_python": BUILD_GRAPH,
    "03_tiled_gemm": BUILD_GRAPH,
    "04_matmul_chain": ("host_build_graph",),
    "05_paged_attention": ("host_build_graph",),
}

# The size of every graph, counted by hand: paged attention has 4 tasks for each block of each
# sequence and key head, the tiled GEMM 2 for each tile of C and step of its chain.
TASKS = {
    "01_vector": {"constant": 4, "random": 4},
    "02_vector_python": {"constant": 4, "random": 4},
    "03_tiled_gemm": {"grid_4x4x4": 128, "long_chains_1x2x16": 64},
    "04_matmul_chain": {"constant": 4, "random": 4},
    "05_paged_attention": {
        "context_33": 12,
        "context_31": 8,
        "context_128": 32,
        "ragged_2": 20,
        "ragged_4": 64,
        "grouped_heads": 32,
        "batch_256_context_16": 1024,
        "batch_256_context_48": 3072,
    },
}

RUNS = [
    (example, runtime, case)
    for example, cases in TASKS.items()
    for runtime in RUNTIMES[example]
    for case in cases
]


def pto_run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `pto run` of the environment that runs the tests."""
    command = [str(Path(sys.executable).with_name("pto")), "run", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_every_example_is_listed() -> None:
    folders = {path.name for path in EXAMPLES.iterdir() if path.is_dir()}
    assert folders == set(TASKS) == set(RUNTIMES)


@pytest.mark.parametrize("example", sorted(TASKS))
def test_every_case_is_listed(example: str) -> None:
    golden = runpy.run_path(str(EXAMPLES / example / "golden.py"))
    assert set(golden["ALL_CASES"]) == set(TASKS[example])
    assert golden["DEFAULT_CASE"] in TASKS[example]


@pytest.mark.parametrize("example", sorted(TASKS))
def test_readme_fits_on_a_screen(example: str) -> None:
    text = (EXAMPLES / example / "README.md").read_text()
    assert len(text.splitlines()) <= README_LINES_MAX
    assert f"examples/{example}" in text, "the README names the command that runs the example"


@pytest.mark.parametrize(("example", "runtime", "case"), RUNS)
def test_example_matches_its_reference(example: str, runtime: str, case: str) -> None:
    report = run_case(EXAMPLES / example, case, runtime=runtime).check()
    assert report.passed
    assert report.compared
    assert report.runtime == runtime
    assert report.tasks == TASKS[example][case]


def test_python_program_runs_on_both_runtimes() -> None:
    script = EXAMPLES / "02_vector_python" / "main.py"
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        f"{runtime}: 4 tasks, every element is 42.0" for runtime in BUILD_GRAPH
    ]


@pytest.mark.parametrize("example", ["01_vector", "05_paged_attention"])
def test_wrong_reference_fails(example: str, tmp_path: Path) -> None:
    copy = tmp_path / example
    shutil.copytree(EXAMPLES / example, copy)
    golden = copy / "golden.py"
    output = runpy.run_path(str(golden))["__outputs__"][0]
    golden.write_text(
        golden.read_text()
        + "\n\n_right_golden = compute_golden\n\n\n"
        + "def compute_golden(tensors, params):\n"
        + "    _right_golden(tensors, params)\n"
        + f"    tensors[{output!r}].flat[-1] += 1.0\n"
    )
    done = pto_run(str(copy))
    said = done.stdout + done.stderr
    assert done.returncode == 1, said
    assert f"output {output!r}" in said
    assert "1 of " in said, "one element is wrong, and the message counts it"
