"""The HTML page of a Worker's trace: its lanes, tasks, dependencies and counters."""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pto_insight.traces import Event
from pto_insight.traces.page import worker_page
from pto_insight.traces.records import WORKER_RECORD
from pto_insight.traces.worker_trace import WorkerTrace


def data_of(text: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    data: dict[str, Any] = json.loads(found[1])
    return data


def decoded(columns: dict[str, Any]) -> dict[str, list[Any]]:
    return {
        name: np.frombuffer(base64.b64decode(text), f"<{kind}").tolist()
        for name, (kind, text) in columns.items()
    }


def test_each_process_has_its_lanes(pod: WorkerTrace) -> None:
    text = worker_page(pod)
    assert "not the chip" in text
    data = data_of(text)
    items = decoded(data["items"])
    found = {}
    for lane in data["lanes"]:
        rows = range(lane["first"], lane["end"])
        slices = [
            (data["names"][items["name"][row]], items["start"][row], items["end"][row])
            for row in rows
        ]
        is_core = lane["name"] == "L4/host0/chip0 AIV 0"
        assert lane["group"] == ("cluster 0" if is_core else "")
        found.setdefault((lane["name"], lane["kind"]), []).append(slices)
        assert all((items["task"][row] >= 0) == (lane["kind"] == "core") for row in rows)
    assert found == {
        ("L4 orchestrator", "thread"): [[("build", 0, 90)]],
        ("L4 scheduler", "thread"): [[("fill", 7, 9)]],
        ("L4 ranges of MainThread", "range"): [
            [("all", 0, 95)],
            [("part", 0, 50), ("empty", 60, 60)],
        ],
        ("L4/host0 tasks", "core"): [[("far", 50, 80)]],
        ("L4/host0 waits", "thread"): [[("require", 11, 12)]],
        ("L4/host1 tasks", "core"): [[("near", 10, 40)]],
        ("L4/host0/chip0 tasks", "core"): [[("near", 58, 70)]],
        ("L4/host0/chip0 AIV 0", "core"): [[("load", 64, 66)]],
        ("L4/host0/chip0 orchestrator", "thread"): [[("build", 60, 69)]],
    }


def test_tasks_have_their_times_and_dependencies(pod: WorkerTrace) -> None:
    edge = np.array([(8, 8, 0, 1, 3, Event.EDGE, 0, 0, 0)], WORKER_RECORD)
    pod.records = np.concatenate([pod.records, edge])
    pod.tasks["released_by"] = -1
    pod.tasks["processor"] = 20
    pod.devices["L4/host0/chip0"].tasks["processor"] = 1
    data = data_of(worker_page(pod))
    tasks, items = decoded(data["tasks"]), decoded(data["items"])
    names = [data["kernels"][kernel] for kernel in tasks["kernel"]]
    near, far = (
        row
        for name in ("near", "far")
        for row in range(len(names))
        if names[row] == name and data["cores"][tasks["core"][row]].count("/") == 1
    )
    assert decoded(data["edges"]) == {"from": [near], "to": [far]}
    assert [tasks[name][far] for name in ("submit", "ready", "dispatch", "complete")] == [
        42,
        5,
        4,
        5,
    ]
    assert items["start"][items["task"].index(far)] == 50
    assert sorted(tasks["processor"]) == [1, 20, 20, 20]


CATCH = """<head><script>
window.addEventListener("error", (event) => { document.title = "error: " + event.message; });
</script>"""


@pytest.mark.toolchain
def test_the_page_works_in_a_browser(pod: WorkerTrace, tmp_path: Path) -> None:
    chromium = shutil.which("chromium")
    assert chromium is not None, "chromium was not found; .ci/install-toolchain installs it"
    opened = tmp_path / "trace.html"
    opened.write_text(worker_page(pod).replace("<head>", CATCH, 1))
    command = [
        *(chromium, "--headless=new", "--no-sandbox", "--disable-gpu"),
        *(f"--user-data-dir={tmp_path / 'profile'}", "--virtual-time-budget=2000", "--dump-dom"),
    ]
    done = subprocess.run(
        [*command, opened.as_uri()], capture_output=True, text=True, timeout=300, check=True
    )
    assert "<title>3 tasks of L4, L4/host0</title>" in done.stdout, "the page had an error"
    drawn = re.search('data-drawn="([0-9]+)"', done.stdout)
    assert drawn is not None
    assert int(drawn[1]) >= len(data_of(opened.read_text())["lanes"])
