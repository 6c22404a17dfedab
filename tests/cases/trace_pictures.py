"""Make the pictures of docs/traces.md: screenshots of the pages of two traced runs.

    python tests/cases/trace_pictures.py [FOLDER]

It runs a copy of examples/03_tiled_gemm with a defect, and the example itself, and opens the pages
in headless Chromium. Times differ between machines, so the pictures do too. Each program runs
many times; the fastest run is shown, because other programs delayed it least.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np

from pto_insight.traces import Trace
from pto_insight.traces.analysis import span
from pto_insight.traces.files import read_trace, write_trace
from pto_insight.traces.records import TIMES
from pto_insight.traces.summary import difference_text, summary_text

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "03_tiled_gemm"
SOURCE = Path("kernels", "orchestration", "tensormap_and_ringbuffer.cpp")
RIGHT = """make_output_param(product)};
          pto2_rt_submit_task(rt, kGemmTile, PTO2_WORKER_CUBE, gemm, 3);"""
WRONG = """make_output_param(product), make_inout_param(c)};
          pto2_rt_submit_task(rt, kGemmTile, PTO2_WORKER_CUBE, gemm, 4);"""
RUNS = 100


def plant(folder: Path) -> Path:
    """Copy the example, and declare the whole matrix C as INOUT of each product."""
    copy = folder / "gemm"
    shutil.copytree(EXAMPLE, copy)
    text = (copy / SOURCE).read_text()
    assert text.count(RIGHT) == 1, "the example has changed"
    (copy / SOURCE).write_text(text.replace(RIGHT, WRONG))
    return copy


def run(case: Path, out: Path, *options: str) -> Trace:
    """Trace a case, and return the trace."""
    pto = Path(sys.executable).with_name("pto")
    command = [pto, "run", case, "-r", "tensormap_and_ringbuffer", "--trace-level", "2", "-q"]
    subprocess.run([*command, "--set", "block_dim=4", "--out", out, *options], check=True)
    return read_trace(out)


def fastest(case: Path, out: Path, runs: int) -> tuple[Trace, Path]:
    """Run a case several times, and return the trace and the page of the fastest run."""
    every = run(case, out, "--repeat", str(runs))
    one = min((only(every, number) for number in range(runs)), key=lambda trace: span(trace)[1])
    return one, write_trace(one, out / "fastest")[-1]


def only(trace: Trace, number: int) -> Trace:
    """Return the trace of one run, whose times begin with 0."""
    records = trace.records[trace.records["run"] == number]
    tasks = trace.tasks[trace.tasks["run"] == number]
    begin = records["start"].min()
    for rows, names in ((records, ("start", "end")), (tasks, tuple(TIMES.values()))):
        rows["run"] = 0
        for name in names:
            rows[name] = np.where(rows[name] < 0, -1, rows[name] - begin)
    return replace(trace, records=records, tasks=tasks, epoch_ns=trace.epoch_ns + int(begin))


def screenshot(page: Path, picture: Path, height: int, script: str = "") -> None:
    """Open a page in a browser, run a script in it, and take a picture."""
    chromium = shutil.which("chromium")
    assert chromium is not None, "chromium was not found; .ci/install-toolchain installs it"
    with tempfile.TemporaryDirectory() as folder:
        opened = Path(folder) / "page.html"
        opened.write_text(page.read_text().replace("</body>", f"<script>{script}</script></body>"))
        command = [chromium, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
        command += [f"--user-data-dir={folder}/profile", "--virtual-time-budget=2000"]
        command += [f"--window-size=1200,{height}", f"--screenshot={picture}", opened.as_uri()]
        subprocess.run(command, check=True, capture_output=True, timeout=300)


def main(target: Path, runs: int = RUNS) -> None:
    """Make all pictures, and print the summary of the first run and the comparison with the last.

    ``show(40)`` selects the 41st task to start, which is a product.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        slow, page = fastest(plant(folder), folder / "slow", runs)
        screenshot(page, target / "trace-slow.png", 480)
        screenshot(page, target / "trace-task.png", 650, "timeline.show(40);")
        right, page = fastest(EXAMPLE, folder / "right", runs)
        screenshot(page, target / "trace-right.png", 650)
    sys.stdout.write(summary_text(slow) + "\n" + difference_text(slow, right))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "pictures")
