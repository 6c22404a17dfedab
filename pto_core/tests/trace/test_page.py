"""The HTML page of a trace: its size, its content, and its script, run by Node.js."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pto_core.trace import Event, Trace
from pto_core.trace.page import page
from pto_core.trace.records import RECORD, TASK

COUNT = 100_000


@pytest.fixture(scope="module")
def large() -> Trace:
    """A trace of 100,000 short tasks on 48 cores, each released by an earlier one."""
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
    records = np.zeros(2, RECORD)
    records["event"], records["track"] = (Event.BUILD, Event.BACK_PRESSURE), 0
    records["start"], records["end"] = (0, 100), (10_000, 5_000)
    names = ("load", "add", "mul", "</script>", "store")
    return Trace(records, tasks, names, {}, 24, "ns", 10**12, 2, "a2a3sim", "pto2")


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
result.text = page.description(data, items, tasks, item).join("|");
result.moved = page.moved({begin: 0, end: 10}, -5, 100);
console.log(JSON.stringify(result));
"""


@pytest.mark.toolchain
def test_the_script_draws_a_bounded_number_of_rectangles(large: Trace, tmp_path: Path) -> None:
    node = shutil.which("node")
    assert node is not None, "node was not found; .ci/install-toolchain installs it"
    (tmp_path / "test.js").write_text(SCRIPT)
    data = tmp_path / "data.json"
    data.write_text(json.dumps(data_of(page(large))))
    script = str(files("pto_core.trace") / "page.js")
    command = [node, str(tmp_path / "test.js"), script, str(data)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    result = json.loads(done.stdout)
    assert result["most"] <= 1000
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
