"""The trace of a Worker names the source line and the arguments of each task."""

from __future__ import annotations

import base64
import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from task_arguments import given

from pto_core import ContinuousTensor, In, InOut, Out, TensorArgType, Worker, task
from pto_core.cli.main import main
from pto_insight.traces.worker_trace import WorkerTrace

READ, OUT = TensorArgType.INPUT, TensorArgType.OUTPUT
EXISTING = TensorArgType.OUTPUT_EXISTING


@task
def add(a: In, total: InOut) -> None:
    total += a


@task
def fill(out: Out) -> None:
    out[:] = 1


@task
def naps(out: Out) -> None:
    time.sleep(0.005)


def nothing(args: Any) -> None:
    pass


def line_after(text: str) -> str:
    """Return the position of the only line of this file that contains the text."""
    lines = Path(__file__).read_text().splitlines()
    (number,) = [n for n, line in enumerate(lines, 1) if f"# {text}" in line]
    return f"{Path(__file__).name}:{number}"


def submitted(trace: WorkerTrace) -> list[tuple[str, list[str]]]:
    rows = np.sort(trace.tasks, order=["worker", "task", "member"])
    return [trace.submitted(row) for row in rows]


def run_session(worker: Worker, array: Any) -> None:
    with worker.session() as s:
        between = s.empty((3,), "int64")
        s.submit(fill, between)  # fills
        s.submit(add, between, array[1])  # adds
        s.submit_group(fill, [(array[0, :2],), (array[0, 2:],)])  # a group


EXPECTED = [
    ("fills", ["OUTPUT int64 3 in alloc 0"]),
    ("adds", ["INPUT int64 3 in alloc 0", "INOUT int64 3 in memory 0 from element 3"]),
    ("a group", ["OUTPUT int64 2 in memory 0"]),
    ("a group", ["OUTPUT int64 1 in memory 0 from element 2"]),
]


def test_the_submits_of_a_session(make: Callable[..., Worker], tmp_path: Path, capsys: Any) -> None:
    worker = make(num_sub_workers=2)
    array = worker.shared_array((2, 3), "int64")
    with worker.trace(2) as trace:
        run_session(worker, array)
    with worker.trace(1) as trace_of_level_1:
        run_session(worker, array)
    expected = [(line_after(name), arguments) for name, arguments in EXPECTED]
    assert submitted(trace) == expected
    assert submitted(trace_of_level_1) == [(place, []) for place, _ in expected]
    _, timeline, page = trace.write(tmp_path / "run")
    for place, arguments in expected:
        assert place.encode() in timeline.read_bytes()
        assert "; ".join(arguments).encode() in timeline.read_bytes()
    assert hovered(page.read_text()) == sorted(expected)
    assert main(["trace", "summary", str(tmp_path)]) == 0
    fills, adds, _, _ = expected
    found = [re.split("  +", line) for line in capsys.readouterr().out.splitlines()]
    lines = {(words[0], words[1]): words[2:] for words in found if len(words) > 5}
    assert lines[adds[0], "add"][-1] == "INPUT int64 3, INOUT int64 3"
    assert lines[fills[0], "fill"][0] == "1"


def hovered(page: str) -> list[tuple[str, list[str]]]:
    """Return the source line and the arguments that the page shows for each task."""
    (text,) = re.findall(r'<script [^>]*id="data">(.*?)</script>', page, re.DOTALL)
    data = json.loads(text)

    def column(name: str, of: str) -> Any:
        kind, content = data[of][name]
        return np.frombuffer(base64.b64decode(content), f"<{kind}").tolist()

    columns = (column(name, "details") for name in ("place", "first", "count"))
    found = []
    for place, first, count in zip(*columns, strict=True):
        arguments = [
            data["texts"][column("text", "arguments")[n]]
            + " in "
            + data["buffers"][column("buffer", "arguments")[n]]
            + (f" from element {begin}" if (begin := column("offset", "arguments")[n]) else "")
            for n in range(first, first + count)
        ]
        found.append((data["places"][place], arguments))
    return sorted(found)


def test_the_rings_of_a_worker_have_peaks_and_advice(
    make: Callable[..., Worker], tmp_path: Path
) -> None:
    worker = make(num_sub_workers=1, heap_ring_size=1 << 13)
    array = worker.shared_array(8, "int64")
    with worker.trace(3) as trace, worker.session() as s:
        for _ in range(5):
            with s.scope():
                space = s.empty((512,), "int64")  # two fill the ring
                s.submit(naps, space)
                last = s.submit(add, array, array)
        last.result()
    _, timeline, page = trace.write(tmp_path / "run")
    table = trace.table()
    peaks = dict(re.findall(r"^(ring \d, heap bytes) +([\d,]+)$", table, re.MULTILINE))
    assert peaks == {"ring 1, heap bytes": "8,192"}
    assert b"ring 1, heap bytes" in timeline.read_bytes()
    assert "L3 ring 1, heap bytes" in page.read_text()
    assert "for space: use a larger heap_ring_size" in table
    with worker.trace(3) as calm, worker.session() as s:
        s.submit(add, array, array).result()
    assert "no submit waited for space" in calm.table()


def test_replays_and_outputs_of_tasks(make: Callable[..., Worker]) -> None:
    worker = make(num_sub_workers=1)
    sub = worker.register(nothing)

    def graph(orch: Any, view: Any, config: Any) -> None:
        made = given((ContinuousTensor.from_pointer(0, (4,), "float32"), OUT))
        orch.submit_sub(sub, made)  # makes
        orch.submit_sub(sub, given((made.tensors[0], READ), (view.tensors[0], EXISTING)))  # uses

    array = worker.shared_array(2, "int64")
    args = given((array, EXISTING))
    captured = worker.capture(graph, args)
    with worker.trace(2) as trace:
        worker.replay(captured, args)
        worker.run(graph, args)
    first, _, third, _ = np.sort(trace.tasks["task"]).tolist()
    for made, part in ((first, submitted(trace)[:2]), (third, submitted(trace)[2:])):
        buffer = f"float32 4 in output of task {made}"
        assert part == [
            (line_after("makes"), [f"OUTPUT {buffer}"]),
            (line_after("uses"), [f"INPUT {buffer}", "OUTPUT_EXISTING int64 2 in memory 0"]),
        ]
