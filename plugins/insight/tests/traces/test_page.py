"""The HTML page of a trace: its size, its content, and its script, run by Node.js."""

from __future__ import annotations

import html
import json
import os
import re
import shutil
import subprocess
import time
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pto_insight.traces import Event, Trace
from pto_insight.traces.details import ARGUMENT, SUBMIT, Details
from pto_insight.traces.page import page
from pto_insight.traces.pftrace import pftrace
from pto_insight.traces.records import RECORD, TASK

COUNT = 100_000


@pytest.fixture(scope="module")
def large() -> Trace:
    """A trace of 100,000 short tasks on 48 cores, with all that a page can show of them.

    Each task has two edges, three arguments and a record of the use of its ring.
    """
    numbers = np.arange(COUNT)
    starts = numbers // 2 * 1000 + 5000
    tasks = np.zeros(COUNT, TASK)
    tasks["task"] = numbers
    tasks["kernel"] = numbers % 5
    tasks["released_by"] = numbers - 10
    tasks["core"] = 24 + numbers % 48
    tasks["worker"] = numbers % 2
    for name, since in (("submit", 5000), ("ready", 900), ("dispatch", 400)):
        tasks[name] = starts - since
    tasks["start"], tasks["end"], tasks["complete"] = starts, starts + 990, starts + 1400
    records = np.zeros(2 + 2 * COUNT, RECORD)
    records["event"][:2] = (Event.BUILD, Event.BACK_PRESSURE)
    records["start"][:2], records["end"][:2] = (0, 100), (10_000, 5_000)
    edges, uses = records[2 : 2 + COUNT], records[2 + COUNT :]
    edges["event"], edges["a"], edges["b"] = Event.EDGE, np.maximum(numbers - 20, 0), numbers
    edges["start"] = edges["end"] = tasks["submit"]
    uses["event"], uses["a"], uses["b"] = Event.RING, 1 << 56 | numbers % 1000, numbers % 77
    uses["start"] = uses["end"] = tasks["submit"]
    names = ("load", "add", "mul", "</script>", "store")
    return Trace(
        *(records, tasks, names, {}, 24, "ns", 10**12, 2, "a2a3sim", "pto2"),
        details=details(numbers),
    )


@pytest.fixture
def artefacts() -> Path:
    """Return the folder of files that people inspect after the tests."""
    default = Path(__file__).resolve().parents[4] / "build" / "artefacts"
    folder = Path(os.environ.get("TEST_ARTEFACTS", default))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def details(numbers: Any) -> Details:
    """Return submits with three arguments: an input, an output, and that of the task before."""
    submits = np.zeros(COUNT, SUBMIT)
    submits["number"] = np.arange(COUNT)
    submits["task"], submits["place"] = numbers, numbers % 2
    submits["first"], submits["count"] = 3 * numbers, 3
    submits["bytes"] = 1000
    arguments = np.zeros(3 * COUNT, ARGUMENT)
    arguments["text"] = np.arange(3 * COUNT) % 3
    arguments["offset"] = np.repeat(numbers, 3) * 64
    arguments["owner"] = -1
    arguments["owner"][2::3] = numbers - 1
    texts = ("INPUT float32 64", "OUTPUT float32 64", "INOUT int8 2 x 2")
    return Details(submits, arguments, ("graph.cpp:10", "graph.cpp:20"), texts, ("a", "memory"))


def data_of(text: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    data: dict[str, Any] = json.loads(found[1])
    return data


def test_the_page_of_many_tasks_is_small_and_complete(large: Trace) -> None:
    text = page(large)
    assert len(text) < 25e6
    assert "host time on 2 threads, not the chip" in text
    assert not re.search(r"(src|href)\s*=", text), "the page refers to another file"
    data = data_of(text)
    assert [lane["name"] for lane in data["lanes"]][:2] == ["AIV 0", "AIV 1"]
    lanes = [lane["name"] for lane in data["lanes"]]
    assert lanes[-3:] == ["orchestrator", "pool worker 0", "pool worker 1"]
    assert data["kernels"][3] == "</script>"


def test_the_timeline_of_many_tasks_is_written_fast(large: Trace) -> None:
    begin = time.process_time()
    content = pftrace(large)
    assert time.process_time() - begin < 4
    assert len(content) > 20 * COUNT


def test_lanes_are_grouped_by_cluster(large: Trace) -> None:
    tasks = large.tasks[:4].copy()
    tasks["core"] = [25, 1, 27, 0]
    lanes = data_of(page(replace(large, tasks=tasks, details=None)))["lanes"]
    assert [(lane["name"], lane["group"]) for lane in lanes if lane["kind"] == "core"] == [
        ("AIC 0", "cluster 0"),
        ("AIV 1", "cluster 0"),
        ("AIC 1", "cluster 1"),
        ("AIV 3", "cluster 1"),
    ]
    assert {lane["group"] for lane in lanes if lane["kind"] != "core"} == {""}


def test_items_that_contain_others_are_cut(large: Trace) -> None:
    data = data_of(page(large))
    (lane,) = [lane for lane in data["lanes"] if lane["name"] == "orchestrator"]
    assert lane["end"] - lane["first"] == 3


SCRIPT = """
const page = require(process.argv[2]);
const data = JSON.parse(require("fs").readFileSync(process.argv[3]));
const items = page.decode(data.items), tasks = page.decode(data.tasks);
const width = 1000;
const result = {most: 0, overlaps: 0, drawn: [], counted: [], exact: 0};
let view = {begin: 0, end: data.total};
for (let zoom = 0; zoom < 60; ++zoom) {
  let drawn = 0;
  for (const lane of data.lanes) {
    const found = page.rectangles(items, lane.first, lane.end, view, width);
    result.most = Math.max(result.most, found.length);
    drawn += found.length;
    for (let i = 1; i < found.length; ++i) {
      if (Math.floor(found[i][1]) < Math.floor(found[i - 1][1])) ++result.overlaps;
    }
    if (zoom === 0) result.counted.push(found.reduce((sum, one) => sum + one[3], 0));
  }
  result.drawn.push(drawn);
  view = page.zoomed(view, 0.7, 20_000_000.25, data.total);
}
result.view = view;
result.matches = page.matches(data, tasks, "LOAD").length;
result.number = page.matches(data, tasks, "77777");
const lane = data.lanes[0];
const item = page.itemAt(items, lane.first, lane.end, items.start[lane.first + 5] + 1, 0);
result.item = item - lane.first;
result.gap = page.itemAt(items, lane.first, lane.end, items.end[lane.first + 5] + 1, 0);
const all = data.details;
data.details = null;
result.text = page.description(data, items, tasks, item).join("|");
data.details = all;
result.totals = page.totals(data, items, {begin: 5000 + 495, end: 5000 + 1990});
result.keys = ["w", "S", "a", "D", "x"].map((key) =>
  page.keyed({begin: 40, end: 60}, key, 50, 100));
result.moved = page.moved({begin: 0, end: 10}, -5, 100);
data.decoded = {details: page.decode(data.details), args: page.decode(data.arguments)};
result.arguments = page.description(data, items, tasks, item).slice(-4);
const itemOfTask = new Int32Array(tasks.task.length).fill(-1);
for (const lane of data.lanes) {
  if (lane.kind !== "core") continue;
  for (let at = lane.first; at < lane.end; ++at) itemOfTask[items.task[at]] = at;
}
const tracks = page.counters(data, items, tasks, itemOfTask);
result.tracks = tracks.map((track) => [track.name, track.values.reduce((a, b) => Math.max(a, b))]);
result.columns = [];
view = {begin: 0, end: data.total};
for (let zoom = 0; zoom < 60; ++zoom) {
  for (const track of tracks) result.columns.push(page.columns(track, view, width).length);
  view = page.zoomed(view, 0.7, 20_000_000.25, data.total);
}
const lengths = {start: Float64Array.of(8, 9, 10, 40), end: Float64Array.of(9, 10, 38, 90)};
result.rectangles = page.rectangles(lengths, 0, 4, {begin: 0, end: 128}, 16);
const busy = {times: Float64Array.of(10, 20, 30, 31), values: Float64Array.of(1, 2, 5, 0)};
result.steps = page.columns(busy, {begin: 15, end: 35}, 4);
const links = page.decode(data.edges);
const into = page.grouped(links.to, tasks.task.length);
const row = [...tasks.task].indexOf(500);
result.into = [...into.of(row)].map((edge) => tasks.task[links.from[edge]]).sort();
console.log(JSON.stringify(result));
"""


@pytest.mark.toolchain
def test_the_script_draws_a_bounded_number_of_rectangles(large: Trace, tmp_path: Path) -> None:
    node = shutil.which("node")
    assert node is not None, "node was not found; .ci/install-toolchain installs it"
    (tmp_path / "test.js").write_text(SCRIPT)
    data = tmp_path / "data.json"
    data.write_text(json.dumps(data_of(page(large))))
    script = str(files("pto_insight.traces") / "page.js")
    command = [node, str(tmp_path / "test.js"), script, str(data)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    result = json.loads(done.stdout)
    assert result["most"] <= 2 * 1000
    assert result["rectangles"] == [[0, 1, 1, 2], [2, 1.25, 3.5, 1], [3, 5, 6.25, 1]]
    assert result["overlaps"] == 0
    # the view of the whole run counts each item in exactly one rectangle
    assert sum(result["counted"]) == 2 * COUNT + 3
    assert result["view"]["begin"] <= 20_000_000.25 <= result["view"]["end"]
    assert result["matches"] == COUNT / 5
    assert result["number"] == [77777]
    assert (result["item"], result["gap"]) == (5, -1)
    assert "core AIV 0" in result["text"]
    assert "released by task 230 (load)" in result["text"]
    assert result["moved"] == {"begin": 0, "end": 10}
    # 2 cores, 990 ns in each 1000 ns: half of the first tasks, and all of the second ones
    assert result["totals"] == [
        "selected: 1.495 us from 5.495 us",
        "                        number      time   longest    share",
        "mul                          1    990 ns    990 ns    1.4 %",
        "</script>                    1    990 ns    990 ns    1.4 %",
        "load                         1    495 ns    495 ns    0.7 %",
        "add                          1    495 ns    495 ns    0.7 %",
        "all tasks, on 48 cores       4  2.970 us    990 ns    4.1 %",
        "build                        1  1.495 us  1.495 us  100.0 %",
    ]
    assert result["keys"] == [
        {"begin": 43, "end": 57},
        {"begin": 50 - 10 / 0.7, "end": 50 + 10 / 0.7},
        {"begin": 36, "end": 56},
        {"begin": 44, "end": 64},
        None,
    ]
    assert result["arguments"] == [
        "submitted at graph.cpp:10",
        "  INPUT float32 64 in a from element 15360",
        "  OUTPUT float32 64 in a from element 15360",
        "  INOUT int8 2 x 2 in output of store, task 239 from element 15360",
    ]
    assert dict(result["tracks"]) == {
        "ready tasks": 2,
        "busy cores": 2,
        "live tasks": 14,
        "ring 1, tasks": 999,
        "ring 1, heap bytes": 76,
    }
    assert max(result["columns"]) <= 1000
    assert result["steps"] == [[0, 1], [1, 2], [2, 2], [3, 5]]
    assert result["into"] == [480, 490]


IN_BROWSER = """
<script>
const report = { zooms: 0, over: 0, most: 0, arrows: 0, tip: "", totals: "", moved: [] };
const t = window.timeline, canvas = document.getElementById("chart");
const all = { ...t.state.view };
document.getElementById("arrows").checked = true;
for (const colours of ["kernel", "core", "critical"]) {
  const choice = document.getElementById("colours");
  choice.value = colours;
  choice.dispatchEvent(new Event("change"));
}
t.show(50000);
t.state.view = all;
const box = canvas.getBoundingClientRect();
for (; report.zooms < 60; ++report.zooms) {
  canvas.dispatchEvent(new WheelEvent("wheel", {
    deltaY: -300, clientX: box.left + 700, clientY: box.top + 200, cancelable: true }));
  const drawn = Number(document.body.dataset.drawn), bound = Number(document.body.dataset.bound);
  report.most = Math.max(report.most, drawn);
  report.arrows = Math.max(report.arrows, Number(document.body.dataset.arrows));
  if (drawn > bound || drawn === 0 && report.zooms < 10) ++report.over;
}
t.state.view = { begin: 25_000_000, end: 25_040_000 };
t.show(50000);
for (let y = 0; y < 1000 && report.tip === ""; y += 9) {
  canvas.dispatchEvent(new MouseEvent("mousemove", {
    bubbles: true, clientX: box.left + box.width / 2 + 60, clientY: box.top + y }));
  if (!document.getElementById("tip").hidden) {
    report.tip = document.getElementById("tip").textContent;
  }
}
for (const key of ["", "d", "s"]) {
  document.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
  report.moved.push(t.state.view.begin, t.state.view.end);
}
const drag = (kind, x) => canvas.dispatchEvent(new MouseEvent(kind, {
  bubbles: true, shiftKey: true, clientX: box.left + x, clientY: box.top + 200 }));
drag("mousedown", 400);
drag("mousemove", 900);
drag("mouseup", 900);
report.totals = document.getElementById("totals").textContent;
document.body.dataset.report = JSON.stringify(report);
</script></body>"""

CATCH = """<head><script>
window.addEventListener("error", (event) => { document.title = "error: " + event.message; });
</script>"""


@pytest.mark.toolchain
def test_the_page_works_in_a_browser(large: Trace, tmp_path: Path, artefacts: Path) -> None:
    chromium = shutil.which("chromium")
    assert chromium is not None, "chromium was not found; .ci/install-toolchain installs it"
    text = page(large).replace("<head>", CATCH, 1).replace("</body>", IN_BROWSER)
    opened = tmp_path / "trace.html"
    opened.write_text(text)
    picture = artefacts / "trace-page.png"
    command = [
        *(chromium, "--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1500,1500"),
        *(f"--user-data-dir={tmp_path / 'profile'}", "--virtual-time-budget=2000"),
    ]

    def run(what: str) -> str:
        done = subprocess.run(
            [*command, what, opened.as_uri()], capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    document = run("--dump-dom")
    assert "<title>100,000 tasks on a2a3sim, pto2</title>" in document, "the page had an error"
    found = re.search('data-report="([^"]*)"', document)
    assert found is not None
    report = json.loads(html.unescape(found[1]))
    assert (report["zooms"], report["over"]) == (60, 0)
    assert 0 < report["arrows"] <= 4000
    assert 1000 < report["most"] < 100_000
    assert "submitted at graph.cpp" in report["tip"]
    begin, end, *moved = report["moved"]
    length = end - begin
    assert moved[:2] == pytest.approx([begin + length / 5, end + length / 5])
    assert moved[3] - moved[2] == pytest.approx(length / 0.7)
    assert "all tasks, on 48 cores" in report["totals"]
    run(f"--screenshot={picture}")
    assert picture.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert picture.stat().st_size > 10_000
