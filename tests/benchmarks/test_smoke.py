"""Check that ``python -m benchmarks`` runs and that each budget has a figure; check no times."""

from __future__ import annotations

import fcntl
import json
import os
import re
import statistics
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.figure import Figure, interleaved

pytestmark = pytest.mark.timeout(900)  # it measures everything once, beside other tests

ROOT = Path(__file__).resolve().parents[2]

BUDGETS = {
    "one-task run, median": ("ms", 0.15),
    "one-task run, p99": ("ms", 0.5),
    "build from C++, independent": ("us/task", 0.05),
    "run, independent": ("us/task", 0.06),
    "build from C++, 8 chains": ("us/task", 0.05),
    "run, 8 chains": ("us/task", 0.06),
    "build from C++, single chain": ("us/task", 0.05),
    "run, single chain": ("us/task", 0.12),
    "cost a task from 4,096 to 131,072 tasks (largest), over 1,000 tasks": ("x", 1.5),
    "72 simulated cores over 6": ("x", 1.3),
    "kernels of 20 us on 2 host cores, share of two bare threads": ("x", 0.93),
    "one-task run with tensors, median": ("ms", 0.15),
    "one-task run with tensors, p99": ("ms", 0.5),
    "submit and run, one INOUT over 8 slices": ("us/task", 0.12),
    "orchestration alone, one INOUT over 8 slices": ("us/task", 0.08),
    "submit and run, two inputs, one new output": ("us/task", 0.25),
    "submit and run, single chain": ("us/task", 0.12),
    "submit and run, paged attention, 64 blocks": ("us/task", 25_000 / 65_792),
    "submit alone on one thread, one INOUT over 8 slices": ("us/task", 0.08),
    "submit among 16,384 1-D slices over 8, median": ("x", 1.3),
    "submit among 16,384 1-D slices over 8, p99": ("x", 1.3),
    "submit among 16,384 2-D tiles over 8, median": ("x", 1.3),
    "submit among 16,384 2-D tiles over 8, p99": ("x", 1.3),
    "submit among 16,384 strided boxes over 8, median": ("x", 1.3),
    "submit among 16,384 strided boxes over 8, p99": ("x", 1.3),
    "Python submit with three tensors": ("us", 0.6),
    "August 2026, submit with three tensors": ("us", 0.3),
    "August 2026, task in a chain": ("us", 0.2),
    "August 2026, call of a recorded graph of 100 tasks": ("us", 2),
    "August 2026, one submit of 24 blocks over 24 single submits": ("x", 0.4),
    "idle open device": ("% CPU", 0.5),
    "analysis of a log of 100,000 tasks": ("s", 5.0),
    "trace record": ("ns", 40.0),
    "trace record in a run without a trace": ("ns", 1.0),
    "tasks of 10 us, trace of level 1 over no trace": ("x", 1.02),
    "Worker, tasks of 10 us, trace of level 1 over no trace": ("x", 1.02),
    "Worker, replay, one tensor, CPU of the parent, run included": ("us/task", 0.10),
    "Python add_task with three arguments": ("us", 0.5),
    "Python add_successor": ("us", 0.2),
    "Worker, independent tasks, one child": ("us/task", 0.35),
    "Worker, submit": ("us/task", 0.30),
    "Worker, four distinct tensors": ("us/task", 0.9),
    "Worker, chain in one child": ("us/task", 0.4),
    "Worker, submit_many, one tensor": ("us/task", 0.10),
    "Worker, submit_many, four tensors": ("us/task", 0.25),
    "Worker, replay, submits, one tensor": ("us/task", 0.10),
    "Worker, replay, submits, chain in one child": ("us/task", 0.10),
    "one-task run on a busy Worker, one child, median": ("us", 2.0),
    "one-task run on a busy Worker, two children, median": ("us", 8.0),
    "one-task run on a parked Worker over a bare parked round trip, one child": ("x", 2.0),
    "one-task run on a parked Worker over a bare parked round trip, two children": ("x", 2.0),
    "Worker, chain alternating between two children": ("us/task", 1.0),
    "Worker, groups of two, pipelined": ("us/group", 0.5),
    "Worker, groups of two, one at a time": ("us/group", 8.0),
    "tasks of 50 us on 2 children, share of two bare processes": ("x", 0.93),
    "Worker.init, two children": ("ms", 10.0),
    "Worker.close, two children": ("ms", 5.0),
    "private dirty memory of a child": ("MB", 4.0),
    "idle Worker, with its two children": ("% CPU", 0.5),
    "1,000,000 waiting tasks of one tensor": ("MB", 350.0),
    "one-task run on a simulated chip of a Worker, median": ("ms", 0.3),
    "Worker, small pickled argument and result, pipelined": ("us/task", 6.0),
    "Worker, tasks of random lengths, 2 children, over a list schedule": ("x", 1.05),
    "Worker, tasks of random lengths, 4 children, over a list schedule": ("x", 1.05),
    "Worker, result of 100 MiB, share of the rate of memcpy": ("x", 0.6),
    "pto --help": ("s", 0.2),
    "pto run examples/01_vector, warm cache": ("s", 0.5),
}
AT_LEAST = {
    "kernels of 20 us on 2 host cores, share of two bare threads",
    "tasks of 50 us on 2 children, share of two bare processes",
    "Worker, result of 100 MiB, share of the rate of memcpy",
}
for keys in ("without keys", "with CURVE"):
    trip = f"remote, round trip over bare pyzmq and two parked local children, {keys}"
    rates = {
        f"remote, empty tasks, {keys}": ("1/s", 50_000.0),
        f"remote, empty tasks over those of a local child, {keys}": ("x", 0.5),
        f"remote, changed input over bare pyzmq, {keys}": ("x", 0.8),
    }
    BUDGETS |= rates
    AT_LEAST |= rates.keys()
    BUDGETS |= {
        f"remote, start with two SUB children, {keys}": ("s", 0.7),
        trip: ("x", 1.3),
        f"remote, unchanged input over one read pass and a trip, {keys}": ("x", 1.2),
        f"remote, 32 sessions with equal work, slowest over median, {keys}": ("x", 1.5),
    }
PARKED = ("one child", "two children")
# With one repeat, each figure has one sample, except for this figure, with one for each child.
SAMPLES = {"private dirty memory of a child": 2}
GRAPHS = ("independent", "8 chains", "single chain")


def benchmarks(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks", *map(str, arguments)]
    environment = {name: v for name, v in os.environ.items() if name != "TASKFLOW_INCLUDE"}
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )


class Results:
    def __init__(self, folder: Path) -> None:
        files = folder / "new" / "figures.json", folder / "page.md"
        output = folder / "output"
        if not output.exists():
            done = benchmarks("--quick", "--repeats", 1, "--json", files[0], "--markdown", files[1])
            assert done.returncode == 0, done.stderr
            output.write_text(done.stdout)
        content = json.loads(files[0].read_text())
        self.machine = content["machine"]
        self.figures = {figure["name"]: figure for figure in content["figures"]}
        self.output = output.read_text()
        self.page = files[1].read_text()


@pytest.fixture(scope="module")
def results(folder_of_all: Path) -> Results:
    """Measure once; the tests of this file may run in several processes."""
    folder = folder_of_all / "benchmarks"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return Results(folder)


def test_each_budget_has_a_figure(results: Results) -> None:
    found = {
        name: (figure["unit"], figure["budget"])
        for name, figure in results.figures.items()
        if figure["budget"] is not None
    }
    assert found == BUDGETS
    for name in BUDGETS:
        expected = "at least" if name in AT_LEAST else "at most"
        assert results.figures[name]["budget_is"] == expected


def test_each_figure_has_a_floor_or_a_peer_of_the_same_run(results: Results) -> None:
    for name, figure in results.figures.items():
        assert figure["peer"], name
        if not figure["not_measured"]:
            assert figure["ratio"] is not None or figure["unit"] == "x", name


def test_peers_are_measured_or_have_a_reason(results: Results) -> None:
    for graph in GRAPHS:
        openmp = results.figures[f"build and run, {graph}, compared with GCC OpenMP tasks"]
        taskflow = results.figures[f"build and run, {graph}, compared with Taskflow static graph"]
        assert openmp["peer_median"] > 0
        assert taskflow["not_measured"] == "TASKFLOW_INCLUDE is not set"
        assert taskflow["ratio"] is None


def test_a_parked_run_shows_both_times_and_their_ratio(results: Results) -> None:
    for where in PARKED:
        times = results.figures[f"one-task run on a parked Worker, {where}, median"]
        assert times["unit"] == "us"
        assert times["peer_median"] > 0
        assert times["ratio"] == pytest.approx(times["median"] / times["peer_median"])
        over = f"one-task run on a parked Worker over a bare parked round trip, {where}"
        assert results.figures[over]["peer"] == times["peer"]


def test_the_json_has_the_samples_and_their_summary(results: Results) -> None:
    for name in BUDGETS:
        figure = results.figures[name]
        samples = figure["samples"]
        assert len(samples) == SAMPLES.get(name, 1), name
        assert figure["min"] == min(samples)
        assert figure["median"] == pytest.approx(statistics.median(samples))
        kept = figure["median"] <= figure["budget"]
        assert figure["met"] == (figure["median"] >= figure["budget"] if name in AT_LEAST else kept)


def test_a_figure_summarises_its_samples() -> None:
    taken = interleaved({"ours": iter("-abcde").__next__, "peer": iter("-123456").__next__}, 5)
    assert taken == {"ours": [*"abcde"], "peer": [*"12345"]}
    shown = Figure("a", "us", [4.0, 1.0, 2.0, 3.0, 9.0], 2.5, peer=[2.0, 5.0, 1.0]).as_json()
    assert (shown["min"], shown["median"], shown["spread"]) == (1.0, 3.0, 5.0 / 3.0)
    assert (shown["met"], shown["peer_median"], shown["ratio"]) == (False, 2.0, 1.5)


def test_the_machine_is_described(results: Results) -> None:
    expected = {"commit", "cpu", "cores", "kernel", "python", "compiler"}
    expected |= {"effort", "load at the start", "load at the end"}
    assert expected <= results.machine.keys()
    assert "too small to judge" in results.machine["effort"]


def test_the_table_has_a_full_row_for_each_figure(results: Results) -> None:
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in results.page.splitlines()
        if line.startswith("|")
    ]
    header, _, *body = rows
    assert ",".join(header) == "figure,median,min,spread,budget,met,floor or peer,ratio"
    assert [row[0] for row in body] == list(results.figures)
    assert {len(row) for row in body} == {len(header)}
    for row in body:
        assert row[0] in results.output
        if row[0] in BUDGETS:
            assert row[5] in ("yes", "NO")
            assert row[4].startswith(">=" if row[0] in AT_LEAST else "<=")
    for key, value in results.machine.items():
        assert f"- {key}: {value}\n" in results.page


@pytest.mark.parametrize("wrong", [["level3"], ["--repeats", "0"]])
def test_wrong_arguments_are_refused(wrong: list[str]) -> None:
    done = benchmarks(*wrong)
    assert done.returncode == 2
    assert "expected" in done.stderr or "groups:" in done.stderr


def without_reason(page: str) -> list[str]:
    """Return the rows that miss their budget without an explanation in the list of the page."""
    given = re.search(r"^The following limits(?:.+\n)+\n((?:- .+\n|  .+\n)+)", page, re.MULTILINE)
    assert given is not None
    starts = tuple(re.findall(r"`([^`]+)`", given[1]))
    missed = re.findall(r"^\| ([^|]+?) \|.*\| NO \|", page, re.MULTILINE)
    return [name for name in missed if not name.startswith(starts)]


def test_each_missed_budget_of_the_published_page_has_a_reason() -> None:
    page = (ROOT / "docs" / "benchmarks.md").read_text()
    assert without_reason(page) == []
    reasons = page[page.index("The following limits") : page.index("\n- commit:")]
    written = (ROOT / "benchmarks" / "table.py").read_text()
    assert reasons.partition("\n\nThe rows of")[0].strip() in written
    unheard_of = "| unheard of | 0.3 us | 0.2 | 9% | <= 0.1 | NO | a floor 0.1 us | 3.00 |\n"
    assert without_reason(page + unheard_of) == ["unheard of"]


def shown_by(page: str) -> set[str]:
    table = page[page.index("\n| --- ") :]
    return set(re.findall(r"^\| (?!---)([^|]+?) \|", table, re.MULTILINE))


def test_the_published_page_shows_the_same_figures(results: Results) -> None:
    page = (ROOT / "docs" / "benchmarks.md").read_text()
    assert shown_by(page) == set(results.figures)
    assert shown_by(results.page) == set(results.figures)
