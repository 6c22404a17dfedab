"""``pto bisect``: the first task whose output differs between two runs."""

from __future__ import annotations

import json
import random
import shlex
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pto_core.cli.main import main
from pto_insight.records import RunRecord

ROWS, STEPS, PLACES = 100, 100, 1

GOLDEN = """
import ctypes
from pathlib import Path

import numpy as np

ALL_CASES = {"right": {}, "planted": {}}
__outputs__ = ["x"]


def generate_inputs(params):
    is_right = params["name"] == "right"
    at = -1 if is_right else int(Path(__file__).with_name("place").read_text())
    return [("x", np.ones((ROWS, 8), np.float32)), ("at", ctypes.c_int64(at))]
""".replace("ROWS", str(ROWS))

CONFIG = """
KERNELS = [{"func_id": 0, "source": "step.cpp", "core_type": "aiv"}]
ORCHESTRATION = {"source": "graph.cpp", "function_name": "aicpu_orchestration_entry"}
"""

STEP = """
#include "pto/abi/kernel.h"
#include "pto/abi/tensor.h"

static float* first_element(int64_t argument) {
  auto* tensor = reinterpret_cast<const pto_tensor_data*>(argument);
  return reinterpret_cast<float*>(tensor->buffer.addr) + tensor->start_offset;
}

extern "C" void kernel_entry(int64_t* args) {
  const float* previous = first_element(args[0]);
  float* row = first_element(args[1]);
  const float sign = args[2] == args[3] ? -1.0f : 1.0f;
  for (int i = 0; i < 8; ++i) row[i] = row[i] * 0.5f + sign * previous[i] * 0.5f;
}
"""

GRAPH = """
#include "pto_orchestration_api.h"

extern "C" PTO2OrchestrationConfig aicpu_orchestration_config(uint64_t*, int) {
  PTO2OrchestrationConfig config{};
  config.expected_arg_count = 2;
  return config;
}

extern "C" void aicpu_orchestration_entry(PTO2Runtime* rt, uint64_t* args, int) {
  const uint64_t shape[] = {ROWS, 8}, row_shape[] = {1, 8};
  Tensor x = make_tensor_external(reinterpret_cast<void*>(args[0]), shape, 2);
  for (uint64_t task = 0; task < ROWS * STEPS; ++task) {
    const uint64_t at[] = {task % ROWS, 0}, before[] = {(task + ROWS - 1) % ROWS, 0};
    Tensor row = x.view(row_shape, at), previous = x.view(row_shape, before);
    PTOParam params[] = {make_input_param(previous), make_inout_param(row), make_scalar_param(task),
                         make_scalar_param(args[1])};
    pto2_rt_submit_task(rt, 0, PTO2_WORKER_VECTOR, params, 4);
  }
}
""".replace("ROWS", str(ROWS)).replace("STEPS", str(STEPS))

LINE = GRAPH[: GRAPH.index("pto2_rt_submit_task")].count("\n") + 1


def test_the_task_with_one_wrong_operation_is_named(case, tmp_path: Path) -> None:
    case.write("golden.py", GOLDEN).write("kernels/kernel_config.py", CONFIG)
    case.write("kernels/step.cpp", STEP).write("kernels/graph.cpp", GRAPH)
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    for place in random.Random(seed).sample(range(ROWS * STEPS), PLACES):
        case.write("place", str(place))
        done = case.command(
            *("bisect", str(case.folder), "-r", "tensormap_and_ringbuffer", "--case", "right"),
            *("--json", "--out", str(tmp_path / "out"), "--against", "--case", "planted"),
        )
        assert done.returncode == 1, done.stderr
        document = json.loads(done.stdout)
        found = document["difference"]
        assert found["task"] == f"step#{place}", "the planted task"
        assert found["where"].endswith(f"graph.cpp:{LINE}")
        (output,) = found["outputs"]
        assert (output["mismatches"], output["first_index"]) == (8, [0, 0])
        assert output["first_actual"] < output["first_expected"]
        assert {one["state"] for one in found["inputs"]} == {"equal"}
        writers = [one["task"] for each in found["inputs"] for one in each["writers"]]
        assert f"step#{place - ROWS}" in writers or place < ROWS
        replayed = case.command("replay", found["files"][1])
        assert replayed.stdout == f"step#{place}: as in the run\n"


@pytest.fixture
def bisect(case, tmp_path: Path):
    """Return a function that compares a case with its copy."""
    copy = tmp_path / "copy"
    shutil.copytree(case.folder, copy)

    def run(*options: str, against: tuple[str, ...] = (str(copy),)):
        folders = (str(case.folder), "--out", str(tmp_path / "out"))
        return case.command("bisect", *folders, *options, "--against", *against)

    return run


def test_outputs_within_the_tolerance_are_equal(case, bisect, tmp_path: Path) -> None:
    equal = bisect(against=("-r", "aicpu_build_graph"))
    assert (equal.returncode, equal.stdout) == (0, "no difference: 1 tasks have equal outputs\n")
    assert not list((tmp_path / "out").iterdir()), "no arrays to show"
    case.kernel("for (int64_t i = 0; i < 64; ++i) f[i] = a[i] * 2.00001f; return;")
    within = bisect("--dtype", "float32")
    assert within.stdout.startswith("no difference: 1 tasks have other bits, all within"), within
    assert within.returncode == 0
    case.kernel("f[7] = 3; a[7] = 4; for (int64_t i = 8; i < 64; ++i) f[i] = 4; return;")
    wrong = bisect("--dtype", "float32")
    assert "the first task that differs is twice#0  " in wrong.stdout
    assert "  1: memory: 8 of 64 elements; first at [0]: 0.0 against 4.0; " in wrong.stdout
    assert "  0: memory is equal before the call\n" in wrong.stdout
    assert wrong.returncode == 1


def test_tasks_that_are_not_compared_are_named(case, bisect, tmp_path: Path) -> None:
    case.graph("host_build_graph", "add();").kernel("a[0] += 1; return;")
    shutil.copy(case.folder / "kernels/twice.cpp", tmp_path / "copy/kernels")
    golden = (case.folder / "golden.py").read_text()
    case.write("golden.py", golden.replace('params["a"], np', 'params["a"] + 1, np'))
    found = bisect()
    assert found.returncode == 1
    lines = found.stdout.splitlines()
    assert lines[0] == "no difference in the tasks that were compared: 0 tasks have equal outputs"
    assert lines[1].startswith("not compared, because an output differed before the call, or one ")
    assert ": 1 tasks, first twice#0  " in lines[1]
    assert lines[2].startswith(f"only in A ({case.folder}): 1 tasks, first twice#1  ")


def test_recorded_runs_are_compared(case, tmp_path: Path) -> None:
    first, second = tmp_path / "first.ptorecord", tmp_path / "second.ptorecord"
    done = case.command("record", str(case.folder), "-o", str(first), "--seed", "3")
    assert done.returncode == 0, done.stderr
    record = RunRecord.read(first)
    source = record.files["kernels/twice.cpp"].tobytes().replace(b"* 2;", b"* 2 + (i == 7);")
    files = {**record.files, "kernels/twice.cpp": np.frombuffer(source, "u1")}
    replace(record, files=files).write(second)  # its outputs are not those of its kernel
    options = ("--dtype", "float32", "--out", str(tmp_path / "out"), "--case", "first")
    refused = case.command("bisect", str(first), *options, "--against", str(second))
    assert (refused.returncode, "is the record of one case" in refused.stderr) == (2, True)
    found = case.command("bisect", str(first), *options[:-2], "--against", str(second))
    assert "the first task that differs is twice#0  " in found.stdout, found.stderr
    assert "  1: memory: 1 of 64 elements; first at [7]: 4.0 against 5.0; " in found.stdout
    assert found.returncode == 1
    words = shlex.split(found.stdout.splitlines()[-1])
    assert words[:2] == ["next:", "pto"]
    assert case.command(*words[2:]).stdout == "twice#0: as in the run\n"


def test_runs_that_cannot_be_compared_are_refused(
    case, bisect, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for words, text in {
        (): "--against is missing; end the command with",
        ("--dtype", "datetime64", "--against", "-r", "x"): "--dtype is 'datetime64'; use a type",
        ("--against", "--no-such"): "after --against: ",
        ("--against", "--set", "sim.seed=3"): "sets sim.seed; choose the seed with --seed",
        ("--against", "no/folder"): "no/folder",
    }.items():
        assert main(["bisect", str(case.folder), "--out", str(tmp_path / "out"), *words]) == 2
        assert text in capsys.readouterr().err
        assert not (tmp_path / "out").exists()
    case.graph("host_build_graph", "return 0;")
    empty = bisect()
    assert empty.returncode == 2
    assert f"no task of the run A ({case.folder}) has an output" in empty.stderr
    case.graph("host_build_graph").kernel("__builtin_trap();")
    crashed = bisect()
    assert crashed.returncode == 4
    assert f"this is the run A ({case.folder})" in crashed.stderr
