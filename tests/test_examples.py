"""Every example runs as its README says: each case, with each runtime that it supports."""

from __future__ import annotations

import os
import re
import runpy
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from pto_core import open_device, plugins
from pto_core.cases import run_case
from pto_core.cases.golden import TensorArgument, load_golden
from pto_core.cases.kernel_config import load_kernel_config
from pto_core.cases.session import Build
from pto_core.config import load_with_plugins
from pto_core.errors import DeadlockError, UsageError
from pto_core.toolchain import Toolchain

EXAMPLES = Path(__file__).parents[1] / "examples"
README_LINES_MAX = 40

BUILD_GRAPH = ("host_build_graph", "aicpu_build_graph")
TENSORS = ("tensormap_and_ringbuffer",)
RUNTIMES = {
    "01_vector": BUILD_GRAPH + TENSORS,
    "02_vector_python": BUILD_GRAPH,
    "03_tiled_gemm": BUILD_GRAPH + TENSORS,
    "04_matmul_chain": ("host_build_graph",),
    "05_paged_attention": BUILD_GRAPH + TENSORS,
    "06_batch_paged_attention": TENSORS,
    "07_decoder_layer": TENSORS,
    "08_expert_layer": TENSORS,
    "09_cube_vector_clusters": TENSORS,
    "10_python_tasks": TENSORS,
    "22_todays_vector": TENSORS,
    "23_todays_paged_attention": TENSORS,
}

# The size of every graph, counted by hand:
# - 03: 2 tasks for each tile of C and step of its chain;
# - 05: 4 for each block of each sequence and key head;
# - 06: 1 for each chunk of 16 sequences and 16 heads, and 4 for each block of its longest sequence;
# - 07: 1 reserve, 2 x 4 norms, 56 projections, for each of 8 key heads 3 and 4 a block, 40 x 2 out
#   projections, 34 x 3 for gate, up and their product, 40 x 2 down projections;
# - 08: 2 for the router, 5 for each expert, 1 for each 8 tokens;
# - 09: 2 for each tile of rows and columns;
# - 10: 4 for each 32 rows;
# - 22: 4;
# - 23: 3 lanes for each page, and 16 blocks for each sequence.
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
    "06_batch_paged_attention": {
        "Case1": 5,
        "context_33": 13,
        "context_31": 9,
        "context_128": 33,
        "ragged_2": 13,
        "ragged_4": 33,
        "two_head_tiles": 26,
        "last_chunk_of_4": 14,
        "CaseBatch256": 80,
        "batch_256_context_33_to_48": 208,
    },
    "07_decoder_layer": {"contexts_112_to_172": 543, "contexts_1_to_31": 383},
    "08_expert_layer": {
        "experts_16_top_2": 86,
        "experts_64_top_6": 323,
        "two_experts_get_all": 86,
    },
    "09_cube_vector_clusters": {
        "pairs_8x3": 48,
        "blocks_8x3": 48,
        "pairs_30x3": 180,
        "blocks_24x4": 192,
    },
    "10_python_tasks": {"constant": 16, "random": 16},
    "22_todays_vector": {"constant": 4, "random": 4},
    "23_todays_paged_attention": {"context_33": 25, "ragged_4": 112},
}

# Programs at level 3 and up, and their output.
PROGRAMS = {
    "11_two_chips_and_a_host_check": "the host says: right\n",
    "12_pipeline": "200 items, 600 tasks, sum 0.004244\n",
    "13_group_task": "task 0 ran 3 times, task 1 once\ndiagonal 1.000 to 1.000\n",
    "14_tensor_parallel_ffn": "largest difference below 1e-4: True\n",
    "15_pod_of_two_hosts": "sums are right: True\nhosts: 2 - leaves that worked: 4\n",
    "16_a_failure": (
        "failed:    produce in a child: ValueError: number 1 is bad\n"
        "traceback: ValueError: number 1 is bad\n"
        "poisoned:  consume, because of task 2\n"
        "others:    [100.0, 0.0, 102.0]\n"
        "asked:     TaskPoisonedError\n"
        "died:      SIGKILL, while it ran crash\n"
        "again:     7.0\n"
    ),
    "17_two_hosts": (
        "sums are right: True\n"
        "the first half ran in processes of the program's host\n"
        "the second half ran in processes of the agent's host\n"
    ),
    "18_mixed_children": ("total is right: True\nblocks on this host: 4, on the other host: 4\n"),
    "19_a_lost_host": "lost hosts: 1\nall rows are doubled once: True\n",
    "20_laptop_to_cluster": (
        "result is right: True\nhost 1 (laptop, process 4127): 16 of 16 blocks\n"
    ),
}

# aicpu_build_graph shares its code with host_build_graph, so it runs one case of each example.
RUNS = [
    (example, runtime, case)
    for example, cases in TASKS.items()
    for runtime in RUNTIMES[example]
    for case in ([*cases][:1] if runtime == "aicpu_build_graph" else cases)
]


def pto_run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `pto run` in the environment that runs the tests."""
    command = [str(Path(sys.executable).with_name("pto")), "run", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def outputs(
    example: str, case: str, runtime: str, settings: Mapping[str, int] | None = None
) -> dict[str, np.ndarray]:
    """Run a case in this process, without its reference, and return its outputs."""
    config = load_with_plugins({"runtime": runtime, **(settings or {})})
    build = Build(
        Toolchain(config),
        load_kernel_config(EXAMPLES / example / "kernels" / "kernel_config.py"),
        plugins.load_backend(config["backend"]),
        plugins.load_runtime(runtime),
    )
    inputs = load_golden(EXAMPLES / example / "golden.py").generate(case)
    values = [a.array if isinstance(a, TensorArgument) else a.value for a in inputs.arguments]
    with open_device(config=config) as device:
        device.run(build.chip(inputs), *values)
    return {tensor.name: tensor.array for tensor in inputs.tensors if tensor.name in inputs.outputs}


def assert_same_bytes(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> None:
    assert one
    assert {name: array.tobytes() for name, array in one.items()} == {
        name: array.tobytes() for name, array in other.items()
    }


def test_every_example_is_listed() -> None:
    folders = {path.name for path in EXAMPLES.iterdir() if path.is_dir()}
    assert folders == set(TASKS) | set(PROGRAMS) | {"21_notebook"}
    assert set(TASKS) == set(RUNTIMES)


@pytest.mark.parametrize("example", sorted(TASKS))
def test_every_case_is_listed(example: str) -> None:
    golden = runpy.run_path(str(EXAMPLES / example / "golden.py"))
    assert set(golden["ALL_CASES"]) == set(TASKS[example])
    assert golden["DEFAULT_CASE"] in TASKS[example]


@pytest.mark.parametrize("example", [*sorted({**TASKS, **PROGRAMS}), "21_notebook"])
def test_readme_fits_on_a_screen(example: str) -> None:
    text = (EXAMPLES / example / "README.md").read_text()
    assert len(text.splitlines()) <= README_LINES_MAX
    assert f"examples/{example}" in text, "the README names no command that runs the example"


@pytest.mark.parametrize(("example", "runtime", "case"), RUNS)
def test_example_matches_its_reference(example: str, runtime: str, case: str) -> None:
    settings = {"hazards": "check"} if runtime in TENSORS else {}
    report = run_case(EXAMPLES / example, case, runtime=runtime, settings=settings).check()
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


def test_python_tasks_run_as_a_program() -> None:
    script = EXAMPLES / "10_python_tasks" / "main.py"
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "16 tasks, every element is 42.0\n"


@pytest.mark.parametrize("example", PROGRAMS)
def test_program_prints_the_output_in_its_readme(example: str) -> None:
    assert f"```\n{PROGRAMS[example]}```" in (EXAMPLES / example / "README.md").read_text()
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / example / "main.py")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert without_names(done.stdout) == without_names(PROGRAMS[example])


def without_names(printed: str) -> str:
    """Replace the names of machines and the numbers of processes."""
    return re.sub(r"\(.*, process \d+\)", "(NAME)", printed)


@pytest.mark.parametrize("launcher", ["local", "command"])
def test_a_program_runs_on_the_hosts_that_the_settings_name(launcher: str) -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "20_laptop_to_cluster" / "main.py")],
        capture_output=True,
        text=True,
        check=False,
        env={
            **os.environ,
            "PATH": os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"])),
            "PTO_LAUNCHER": launcher,
            "PTO_HOSTS": "4",
            "PTO_HOST_LIST": ",".join(f"{user}@127.0.0.1" for user in "abcd"),
            "PTO_HOST_COMMAND": "sh -c {command}",
        },
    )
    assert done.returncode == 0, done.stderr
    first, *hosts = done.stdout.splitlines()
    assert first == "result is right: True"
    counts = [
        re.fullmatch(r"host \d \(.+, process \d+\): (\d+) of 16 blocks", one) for one in hosts
    ]
    assert len(counts) == 4
    assert sum(int(found[1]) for found in counts if found) == 16


def test_progress_is_plain_lines_without_a_terminal() -> None:
    script = EXAMPLES / "12_pipeline" / "main.py"
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=False
    )
    assert done.stderr.splitlines()[-1] == "L3: 600 of 600 tasks"


@pytest.mark.parametrize(
    ("example", "case"),
    [
        ("01_vector", "random"),
        ("03_tiled_gemm", "grid_4x4x4"),
        ("05_paged_attention", "ragged_4"),
        ("05_paged_attention", "batch_256_context_48"),
    ],
)
def test_every_runtime_computes_the_same_bytes(example: str, case: str) -> None:
    first, *others = (outputs(example, case, runtime) for runtime in RUNTIMES[example])
    for other in others:
        assert_same_bytes(first, other)


def test_pairs_and_blocks_on_clusters_compute_the_same_bytes() -> None:
    example, runtime = "09_cube_vector_clusters", "tensormap_and_ringbuffer"
    assert_same_bytes(
        outputs(example, "pairs_8x3", runtime), outputs(example, "blocks_8x3", runtime)
    )


BATCH_ATTENTION = "06_batch_paged_attention"
SMALL_WINDOW = {"pto2.task_window": 16}
LARGE_BATCHES = [
    case for case in TASKS[BATCH_ATTENTION] if TASKS[BATCH_ATTENTION][case] in (80, 208)
]


@pytest.mark.parametrize("case", LARGE_BATCHES)
def test_rings_shorter_than_the_graph_compute_the_same_bytes(case: str) -> None:
    runtime = "tensormap_and_ringbuffer"
    assert_same_bytes(
        outputs(BATCH_ATTENTION, case, runtime),
        outputs(BATCH_ATTENTION, case, runtime, SMALL_WINDOW),
    )


@pytest.mark.parametrize("case", LARGE_BATCHES)
def test_rings_shorter_than_the_graph_block_and_recycle(case: str) -> None:
    report = run_case(EXAMPLES / BATCH_ATTENTION, case, settings=SMALL_WINDOW)
    statistics = report.check().statistics
    assert statistics["tasks_retired"] == TASKS[BATCH_ATTENTION][case]
    assert statistics["ring1_tasks_peak"] == 15, "the peak is not 15 of 16 slots"
    assert statistics["blocked_on_tasks"] >= 1


def test_rings_shorter_than_a_scope_are_a_proven_deadlock() -> None:
    case = LARGE_BATCHES[-1]
    report = run_case(EXAMPLES / BATCH_ATTENTION, case, settings={"pto2.task_window": 8})
    with pytest.raises(DeadlockError, match=r"PTO2_RING_TASK_WINDOW=16"):
        report.check()


@pytest.mark.parametrize(
    ("variables", "case", "tasks"),
    [
        ({"PA_CASE": "context_31"}, "context_31", 9),
        ({}, "batch_256_context_33_to_48", 208),
        ({"PA_CASE": "Case1"}, "Case1", 5),
        ({"PA_CASE": "context_33", "PA_SEQ_LEN": "33,64, 128,15"}, "context_33", 33),
    ],
)
def test_published_variables_choose_a_batch(
    variables: dict[str, str], case: str, tasks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    report = run_case(EXAMPLES / BATCH_ATTENTION).check()
    assert (report.case, report.tasks) == (case, tasks)


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"PA_CASE": "Case9"}, "DEFAULT_CASE is 'Case9'; expected one of Case1, context_33, "),
        ({"PA_SEQ_LEN": "33,x"}, "ValueError: invalid literal for int.*'x'"),
        ({"PA_SEQ_LEN": "33,0"}, r"PA_SEQ_LEN is \[33, 0\]; expected lengths of at least 1"),
    ],
)
def test_wrong_published_variables_are_refused(
    variables: dict[str, str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(UsageError, match=message):
        run_case(EXAMPLES / BATCH_ATTENTION)


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
    printed = done.stdout + done.stderr
    assert done.returncode == 1, printed
    assert f"output {output!r}" in printed
    assert "1 of " in printed, "the message does not count the wrong element"
