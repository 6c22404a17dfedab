"""``pto run`` writes the trace and the counters of a case."""

from __future__ import annotations

import json

import pytest

from pto_core.trace.files import read_trace


def test_a_case_writes_its_trace(case, tmp_path) -> None:
    out = tmp_path / "traces"
    report = case.json("--trace", "--out", str(out))["cases"][0]
    names = ("first.trace.npz", "first.pftrace", "first.html")
    assert report["files"] == [str(out / name) for name in names]
    assert all((out / name).stat().st_size > 0 for name in names)
    trace = read_trace(out)
    assert [trace.kernel_name(kernel) for kernel in trace.tasks["kernel"]] == ["twice"]
    assert case.command("trace", "summary", str(out)).returncode == 0


def test_all_runs_of_a_case_are_in_one_trace(case, tmp_path) -> None:
    case.json("--trace-level", "4", "--repeat", "3", "--out", str(tmp_path))
    assert read_trace(tmp_path / "first.trace.npz").tasks["run"].tolist() == [0, 1, 2]


def test_a_wrong_result_has_a_trace(case, tmp_path) -> None:
    case.kernel("return;")
    done = case.run("--trace", "--out", str(tmp_path))
    assert done.returncode == 1
    assert len(read_trace(tmp_path).tasks) == 1


def test_a_run_that_takes_too_long_on_the_device_has_a_trace(case, tmp_path) -> None:
    case.kernel("volatile bool more = true; while (more) {}")
    done = case.run("--trace", "--out", str(tmp_path), "--set", "task_timeout_s=0.2")
    assert done.returncode == 4
    tasks = read_trace(tmp_path).tasks
    assert (tasks["start"][0] >= 0, tasks["end"][0]) == (True, -1)


def test_the_counters_are_written(case, tmp_path) -> None:
    case.json("--stats", "--out", str(tmp_path))
    assert json.loads((tmp_path / "first.stats.json").read_text())["tasks"] == 1


def test_the_published_names_are_settings(case, tmp_path) -> None:
    settings = ("enable_l2_swimlane=1", "enable_scope_stats=1", f"output_prefix={tmp_path}/x")
    case.json(*(word for text in settings for word in ("--set", text)))
    names = ("x.trace.npz", "x.pftrace", "x.html", "x.stats.json")
    assert {path.name for path in tmp_path.glob("x.*")} == set(names)


@pytest.mark.parametrize("folder", ["/proc/nowhere", "/dev/null/x"])
def test_a_folder_that_cannot_be_written_is_an_error(case, folder) -> None:
    done = case.run("--trace", "--out", folder)
    assert done.returncode == 2
    assert "a file was not written" in done.stderr
