"""The tools on a program of August 2026, whose edges are found, stated, and those of owners."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from fake_distributions import pto_here

from pto_core import open_device
from pto_core.chip import ChipCallable, CoreCallable, KernelSource, OrchestrationSource
from pto_insight.dumps import TaskDump
from pto_insight.traces.files import read_trace

TOUR = Path(__file__).parent / "tour_2026_08"
PUBLISHED = Path(__file__).parents[2] / "plugins" / "runtime_pto2" / "tests" / "published_2026_08"
ORCHESTRATION = TOUR / "kernels" / "orchestration.cpp"
# The tasks, in the order of their submits.
ALLOC, DOUBLED, LEFT, RIGHT, MIXED, ROWS, PREDICATED, COPY, DUMMY, WRITE, LAST = range(11)


def pto(command: str, *words: object, code: int = 0) -> str:
    done = pto_here(command, TOUR, *words)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def test_the_graph_has_every_kind_of_task_and_of_edge(tmp_path: Path) -> None:
    graph = json.loads(pto("graph", "--format", "json"))
    scale = ["scale"] * 3
    names = ["alloc", *scale, "cube+lane+lane", "rows", *scale[:2], "dummy", *scale[:2]]
    tasks = graph["tasks"]
    assert [task["kernel"] for task in tasks] == names
    assert [tasks[task]["core"] for task in (ALLOC, MIXED, ROWS, DUMMY)] == [
        "",
        "aic+aiv",
        "aiv",
        "",
    ]
    assert tasks[ROWS]["blocks"] == 8
    assert {task["file"] for task in tasks} == {str(ORCHESTRATION)}
    assert all(task["line"] for task in tasks)
    reasons = {
        (edge["first"], edge["second"]): {reason["why"] for reason in edge["reasons"]}
        for edge in graph["edges"]
    }
    assert reasons == {
        (ALLOC, LEFT): {"owner"},
        (ALLOC, RIGHT): {"owner"},
        (DOUBLED, LEFT): {"owner"},
        (DOUBLED, RIGHT): {"owner"},
        (ALLOC, MIXED): {"read"},
        (LEFT, MIXED): {"read"},
        (RIGHT, MIXED): {"read"},
        (ALLOC, ROWS): {"owner"},
        (MIXED, ROWS): {"read"},
        (ALLOC, PREDICATED): {"owner"},
        (ROWS, PREDICATED): {"read"},
        (PREDICATED, COPY): {"retaining"},
        (COPY, DUMMY): {"explicit"},
        (DUMMY, WRITE): {"explicit"},
        (WRITE, LAST): {"retaining"},
    }
    pto("graph", "--out", tmp_path / "graph.svg")
    picture = (tmp_path / "graph.svg").read_text()
    for shown in ("alloc#0", "cube+lane+lane#4", "8 blocks", "dummy#8"):
        assert shown in picture


def test_an_edge_is_explained_by_its_kind() -> None:
    assert "      explicit edge, which also retains the memory\n" in pto("why", COPY, PREDICATED)
    chain = pto("why", WRITE, COPY)
    assert "  dummy#8  " in chain
    assert chain.count("      explicit edge\n") == 2
    assert "names scale#1.1[0:8, 0:8] [INPUT], allocated as scale#1.1 [OUTPUT]" in pto(
        "why", LEFT, DOUBLED
    )
    assert "nothing orders scale#3 after scale#2" in pto("why", RIGHT, LEFT, code=1)


@pytest.mark.parametrize("hazards", ["raw", "full"])
@pytest.mark.parametrize("words", [(), ("--measure",)])
def test_the_check_accepts_stated_edges(hazards: str, words: tuple[str, ...]) -> None:
    assert pto("check", "--hazards", hazards, *words).startswith("no races")


def test_the_check_finds_what_nothing_orders() -> None:
    missing = pto("check", "--case", "edge_is_missing", code=1)
    assert "scale#6 and scale#7 share 512 bytes of alloc#0.0" in missing
    assert "fix: name scale#6 in set_dependencies() or add_dep() of scale#7" in missing
    early = pto("check", "--case", "overwrites_early", code=1)
    assert "races: 5\nscale#7 and scale#11 share 256 bytes of alloc#0.0" in early
    full = pto("check", "--case", "overwrites_early", "--hazards", "full", code=1)
    assert "races: 1\nscale#7 and scale#11 share 256 bytes of alloc#0.0" in full


@pytest.mark.parametrize("words", [(), ("--measure",)])
def test_an_access_of_the_orchestration_orders_as_a_task_does(words: tuple[str, ...]) -> None:
    # The write waits for all uses of the memory but that of scale#7, in a MANUAL scope. So of the
    # five races of scale#11 in the test above only one is left.
    written = pto("check", "--case", "host_writes", *words, code=1)
    assert "races: 2\n" in written
    assert "scale#7 and set_tensor_data#0 share" in written
    if not words:
        assert "the fixes above order 1 more pair" in written  # scale#7 and scale#11
    assert "so that set_tensor_data waits for it" in written
    read = pto("check", "--case", "host_reads", *words, code=1)
    assert "races: 2\nscale#10 and get_tensor_data#0 share" in read


def test_the_chain_of_two_tasks_goes_through_the_access_of_the_orchestration() -> None:
    chain = pto("why", "--case", "host_writes", "scale#11", "scale#6")
    assert "  set_tensor_data#0  " in chain
    assert "      submitted after the access of the orchestration\n" in f"{chain}\n"
    assert "overwrites alloc#0.0 [OUTPUT_EXISTING], written before as" in chain
    assert "nothing orders" in pto("why", "--case", "host_reads", "get_tensor_data#0", 10, code=1)


def test_a_crash_is_reported_although_other_kernels_wait_for_the_crashed_one() -> None:
    ended = pto_here("check", TOUR, "--case", "crashes_beside_others", "--measure")
    assert ended.returncode == 4
    assert "kernel cube (func_id 3) crashed with SIGSEGV; its last access wrote 4 bytes" in (
        ended.stdout + ended.stderr
    )
    words = ("--case", "crashes", "--measure", "--timeout", 30)
    waiting = pto_here("check", TOUR, *words)
    assert waiting.returncode == 4
    report = waiting.stdout + waiting.stderr
    assert "kernel 'cube' (func_id 3), task 4 of ring 0, on AIC" in report
    assert "crashed: ended with SIGSEGV" in report
    assert "lane" not in report


def test_a_wrong_result_names_the_task_that_wrote_it() -> None:
    done = pto_here("run", TOUR, "--case", "wrong_factor")
    assert done.returncode == 1
    report = done.stdout + done.stderr
    assert f"out[0, 0] was last written by\n  scale#10: out [INOUT]  {ORCHESTRATION}:" in report


def test_a_deadlock_names_the_line_and_the_size_that_suffices() -> None:
    words = ("--case", "does_not_fit", "--set", "pto2.heap=16K", "--json")
    done = pto_here("run", TOUR, *words)
    (error,) = json.loads(done.stdout)["cases"][0]["errors"]
    assert error["type"] == "DeadlockError"
    assert error["fields"]["code"] == -2
    assert error["fields"]["settings"] == {"pto2.heap": "105472"}
    assert "1024 bytes wanted at orchestration.cpp:" in error["message"]
    assert "task 0 of ring 0 from orchestration.cpp:" in error["message"]


@pytest.mark.parametrize("mode", ["threads", "deterministic"])
def test_a_trace_and_a_dump_have_each_core_of_a_mixed_task(tmp_path: Path, mode: str) -> None:
    words = ("--trace-level", 4, "--dump", "cube,lane,scale#10")
    pto("run", *words, "--out", tmp_path, "--set", f"sim.mode={mode}")
    dumped = tmp_path / "1" / "right.device0.run1"
    ends = ("cube#{}.npz", "lane#{}.lane0.npz", "lane#{}.lane1.npz")
    names = {end.format(MIXED) for end in ends}
    assert {path.name for path in dumped.iterdir()} == {*names, "scale#10.npz"}
    scaled = TaskDump.read(dumped / "scale#10.npz")
    assert (scaled.argument(1).name, scaled.argument(1).tag) == ("out", "INOUT")
    before, after = (scaled.values(phase, 1) for phase in ("before", "after"))
    np.testing.assert_array_equal(2 * before, after)
    refused = pto_here("replay", dumped / f"cube#{MIXED}.npz")
    assert "its kernel may wait for other kernels" in refused.stderr
    assert pto_here("replay", dumped / "scale#10.npz").stdout == "scale#10: as in the run\n"
    trace = read_trace(tmp_path)
    mixed = trace.tasks[trace.task_numbers(trace.tasks["task"]) == MIXED]
    names = sorted(trace.kernel_name(int(kernel)) for kernel in mixed["kernel"])
    assert names == ["cube", "lane", "lane"]
    assert len(set(mixed["core"].tolist())) == 3
    assert (mixed["submit"] >= 0).sum() == (mixed["complete"] >= 0).sum() == 1
    assert (mixed["start"] <= mixed["end"]).all()
    summary = pto_here("trace", "summary", tmp_path).stdout
    assert "18 tasks" in summary
    assert re.search(r"^lane  +2 ", summary, re.MULTILINE)
    assert re.search(r"^cube  +1 ", summary, re.MULTILINE)


def test_an_expanded_graph_has_the_tasks_and_edges_of_its_body() -> None:
    cores = {"SCALE": "aiv", "ADD": "aic", "BLOCKS": "aiv", "LANE": "aiv", "LANE_OF_CUBE": "aic"}
    kernels = [
        CoreCallable(KernelSource(PUBLISHED / "kernel.cpp", [f"-D{name}"]), core)
        for name, core in cores.items()
    ]
    directions = ("in", "inout", "inout", "scalar")
    source = OrchestrationSource(PUBLISHED / "graphs.cpp")
    program = ChipCallable(source, dict(enumerate(kernels)), directions)
    arrays = [np.ones((8, 16), np.float32) for _ in range(3)]
    with open_device("a2a3sim", runtime="pto2", block_dim=2) as device:
        inline, graph = (
            device.graph(program, *arrays, 3 << 4 | as_graph).to_json() for as_graph in (0, 1)
        )
    assert len(graph["tasks"]) > 100
    assert graph["edges"] == inline["edges"]
    seen = [(task["name"], task["kernel"], task["line"]) for task in graph["tasks"]]
    assert seen == [(task["name"], task["kernel"], task["line"]) for task in inline["tasks"]]


def test_a_wrong_input_names_all_writes_of_the_orchestration(tmp_path: Path) -> None:
    against = ("--out", tmp_path, "--against", "--case", "host_sets_inputs")
    found = pto("bisect", "--case", "right", *against, code=1)
    assert "  0: values is different before the call\n" in found, "A has no such writes"
    changed = ("--case", "host_sets_inputs", "--out", tmp_path, "--against", "--case", "right")
    found = pto("bisect", *changed, code=1)
    writers = re.findall(r"(set_tensor_data#\S+ of \S+ \S+ \(not compared\))", found)
    assert "0: values is different before the call, written by set_tensor_data#1 of " in found
    assert writers == [
        "set_tensor_data#1 of values[0:8, 8:16] (not compared)",
        "set_tensor_data#0 of values[0:8, 0:8] (not compared)",
    ]
