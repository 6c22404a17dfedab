"""``pto run`` writes the trace and the counters of a case."""

from __future__ import annotations

import json

import pytest

from pto_insight.traces import Event
from pto_insight.traces.files import read_trace

NAMES = ("first.trace.npz", "first.pftrace", "first.html")
ENDLESS = "for (;;) usleep(1000);"


def test_a_case_writes_its_trace_and_its_counters(case, tmp_path) -> None:
    out = tmp_path / "traces"
    done = case.json("--trace-level", "4", "--stats", "--repeat", "3", "-v", "--out", str(out))
    (report,) = done["cases"]
    run = out / "1"
    assert report["files"] == [str(run / name) for name in (*NAMES, "first.stats.json")]
    assert all((run / name).stat().st_size > 0 for name in NAMES)
    assert sorted(path.name for path in run.iterdir()) == sorted(
        (*NAMES, "first.stats.json", "log.txt", "run.json")
    )
    assert json.loads((run / "first.stats.json").read_text())["tasks"] == 1
    trace = read_trace(out)
    assert [trace.kernel_name(kernel) for kernel in trace.tasks["kernel"]] == 3 * ["twice"]
    assert trace.tasks["run"].tolist() == [0, 1, 2]
    (kernel,) = report["kernels"]
    assert (kernel["name"], kernel["tasks"], kernel["cores"]) == ("twice", 3, 1)
    lengths = trace.tasks["end"] - trace.tasks["start"]
    assert kernel["total"] == pytest.approx(lengths.sum() / 1e9)
    assert case.command("trace", "summary", str(out)).returncode == 0


def test_a_verbose_run_shows_the_times_of_each_kernel(case) -> None:
    lines = case.run("-v", "--repeat", "2").stdout.splitlines()
    (line,) = [line for line in lines if line.strip().startswith("kernel twice")]
    assert "1 tasks, " in line, "only the first run is traced"
    assert "p99" in line
    assert "1 cores" in line


def test_a_wrong_result_has_a_trace(case, tmp_path) -> None:
    case.kernel("return;")
    done = case.run("--trace", "--out", str(tmp_path))
    assert done.returncode == 1
    assert len(read_trace(tmp_path).tasks) == 1


def test_a_run_that_takes_too_long_on_the_device_has_a_trace(case, tmp_path) -> None:
    case.kernel(ENDLESS)
    done = case.run("--trace", "--out", str(tmp_path), "--set", "task_timeout_s=0.2")
    assert done.returncode == 4
    tasks = read_trace(tmp_path).tasks
    assert (tasks["start"][0] >= 0, tasks["end"][0]) == (True, -1)


@pytest.mark.parametrize("option", ["--flight-recorder", "--trace"])
def test_a_case_that_crashes_leaves_its_last_records(case, tmp_path, option) -> None:
    case.kernel("__builtin_trap();")
    (report,) = case.json(option, "--out", str(tmp_path))["cases"]
    assert report["files"] == [str(tmp_path / "1" / name) for name in NAMES]
    assert f"the last records of each thread are in {tmp_path / '1' / NAMES[0]}" in [
        note for error in report["errors"] for note in error["notes"]
    ]
    trace = read_trace(tmp_path)
    (task,) = trace.tasks
    assert (trace.kernel_name(task["kernel"]), task["start"] >= 0, task["end"]) == (
        "twice",
        True,
        -1,
    )
    assert not list(tmp_path.glob("1/*.flight"))


def test_a_case_that_takes_too_long_leaves_its_last_records(case, tmp_path) -> None:
    case.kernel(ENDLESS)
    done = case.run("--flight-recorder", "--timeout", "15", "--out", str(tmp_path))
    assert done.returncode == 4
    assert Event.START in read_trace(tmp_path).records["event"]


def test_a_case_that_succeeds_leaves_no_records(case, tmp_path) -> None:
    (report,) = case.json("--flight-recorder", "--out", str(tmp_path))["cases"]
    assert report["files"] == []
    assert not list(tmp_path.glob("1/first*"))


def test_a_window_after_the_run_is_empty(case, tmp_path) -> None:
    case.json("--trace-after", "100", "--trace-for", "1", "--out", str(tmp_path))
    trace = read_trace(tmp_path)
    assert (len(trace.records), trace.lost_total) == (0, 0)


def test_the_published_names_are_settings(case, tmp_path) -> None:
    settings = ("enable_l2_swimlane=1", "enable_scope_stats=1", f"output_prefix={tmp_path}/x")
    case.json(*(word for text in settings for word in ("--set", text)))
    endings = ("trace.npz", "pftrace", "html", "stats.json")
    names = {f"x.device0.run1.{ending}" for ending in endings}
    assert {path.name for path in tmp_path.glob("x.*")} == names


@pytest.mark.parametrize("folder", ["/proc/nowhere", "/dev/null/x"])
def test_a_folder_that_cannot_be_written_is_an_error(case, folder) -> None:
    done = case.run("--trace", "--out", folder)
    assert done.returncode == 2
    assert "cannot be written" in done.stderr
