"""The picture of a trace in a notebook: complete if it is small, and bounded if it is large."""

from __future__ import annotations

from xml.etree import ElementTree

import numpy as np

from pto_insight.traces import Trace
from pto_insight.traces.records import RECORD, TASK
from pto_insight.traces.worker_trace import WorkerTrace

SVG = "{http://www.w3.org/2000/svg}"


def elements(shown: Trace | WorkerTrace, name: str) -> list[ElementTree.Element]:
    return list(ElementTree.fromstring(shown._repr_html_()).iter(SVG + name))


def texts(shown: Trace | WorkerTrace, name: str = "text") -> list[str]:
    return [element.text or "" for element in elements(shown, name)]


def test_a_picture_has_each_process_and_task(pod: WorkerTrace) -> None:
    shown = texts(pod)
    lanes = {"L4/host0 tasks", "L4/host1 tasks", "L4/host0/chip0 AIV 0"}
    assert lanes < set(shown)
    assert {"near: 30 ns", "far: 30 ns", "load: 2 ns"} < set(texts(pod, "title"))
    boxes = sorted(elements(pod, "rect"), key=lambda box: float(box.get("x", "")))
    names = [(box[0].text or "").split(":")[0] for box in boxes]
    tasks = [name for name in names if name in ("near", "far", "load")]
    assert tasks == ["near", "far", "near", "load"]
    assert shown.count("near") == 2  # as text in the rectangles
    device = texts(pod.devices["L4/host0/chip0"], "title")
    assert device.count("load: 2 ns") == 2  # on its core, and in its thread


def test_a_large_trace_has_a_small_picture() -> None:
    numbers = np.arange(200_000)
    tasks = np.zeros(len(numbers), TASK)
    tasks["task"] = numbers
    tasks["kernel"] = numbers % 2
    tasks["core"] = numbers % 48
    tasks["start"] = 1000 * numbers
    tasks["end"] = tasks["start"] + 500
    made = Trace(np.zeros(0, RECORD), tasks, ("<a>", "b"), {}, 24, "steps", 0, 1, "a2a3sim", "x")
    assert len(made._repr_html_()) < 600_000
    assert {"<a>", "b"} == set(texts(made, "title"))
    assert "199,999,500 steps" in texts(made)
    assert texts(made)[-1].endswith("25 more lanes are not shown")


def test_an_empty_trace_has_a_picture() -> None:
    nothing = np.zeros(0, RECORD), np.zeros(0, TASK)
    made = Trace(*nothing, (), {}, 24, "ns", 0, 1, "a2a3sim", "x")
    assert texts(made)[-1] == "times: host time on 1 thread, not the chip's"
