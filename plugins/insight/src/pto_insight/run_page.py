"""Pages of static HTML, without scripts and network: all runs of a folder, or dumps of tasks.

The page of a folder has a row for each run, and for the newest runs a section between two comments.
A new run adds its section. The sections of earlier runs are copied from the page: to read their
files again would take longer with each run.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import html
import json
import os
import re
import shlex
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from pto_core.cases.report import SCHEMA_VERSION
from pto_core.cli.run_folder import LOG, PAGE_MARK, RESULT
from pto_core.cli.show import duration
from pto_core.errors import PtoError
from pto_core.output_files import numbered_runs, write_text
from pto_insight.dumps.task_dump import TaskDump
from pto_insight.dumps.text import Comparison, Values, described, shades, shown_values
from pto_insight.graphs.archive import refusing_damage
from pto_insight.traces.data import WorkerTraceData
from pto_insight.traces.files import read_any_data
from pto_insight.traces.summary import summary_text, worker_summary

_SECTION = re.compile("<!-- run ([0-9]+) -->\n(.*?)<!-- end of run -->\n", re.DOTALL)
_FILES = (
    (".trace.npz", "the trace: <code>pto trace summary {}</code>"),
    (".pftrace", 'the timeline: open it in <a href="https://ui.perfetto.dev">ui.perfetto.dev</a>'),
    (".html", "the timeline: opens in a browser, without network"),
    (".stats.json", "the counters of rings and scopes"),
    (".svg", "the graph of the tasks: opens in a browser"),
    (".flight", "the last records of a process that died: <code>pto trace summary {}</code>"),
    (RESULT, "the command, and its result as <code>pto run --json</code> prints it"),
    (".json", "the graph of the tasks, for programs"),
    (LOG, "the results, the warnings and the output of kernels"),
    (".npz", "the arrays of a task: <code>pto dump show {}</code>"),
)
"""What a file is, and how to open it, by the end of its name."""
_RUNS_SHOWN = 20
_TASKS_SHOWN = 24
_BYTES_SHOWN = 8 << 20
"""The size of the largest dump with statistics and pictures, which need a multiple of it."""
_LOG_BYTES = 1 << 16
_ROWS, _COLUMNS = 64, 192
_COLOURS = np.array(((68, 1, 84), (59, 82, 139), (33, 145, 140), (94, 201, 98), (253, 231, 37)))
"""From the smallest to the largest value of a picture."""
_NOT_FINITE = (255, 0, 0)
_STYLE = """
:root { color-scheme: light dark; --good: #17692b; --bad: #b3261e; --line: #8886; }
@media (prefers-color-scheme: dark) { :root { --good: #7fd693; --bad: #ff8a80; } }
body { font: 15px/1.45 system-ui, sans-serif; max-width: 72rem; margin: 1rem auto;
  padding: 0 1rem; overflow-wrap: anywhere; }
h1, h2 { font-size: 1.3rem; margin: 0.3rem 0; }
h2 { display: inline; font-size: 1.1rem; }
h3 { font-size: 1rem; margin: 1.2rem 0 0.3rem; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; vertical-align: top; padding: 0.25rem 0.6rem 0.25rem 0;
  border-bottom: 1px solid var(--line); }
th, td { overflow-wrap: normal; }
td:nth-child(3) { overflow-wrap: anywhere; }
pre.bad, pre.wide { white-space: pre-wrap; }
pre { font-size: 13px; overflow-x: auto; overflow-wrap: normal; margin: 0.4rem 0; padding: 0.5rem;
  border: 1px solid var(--line); border-radius: 4px; }
details { margin: 0.8rem 0; }
summary { cursor: pointer; }
ul { padding-left: 1.2rem; }
.good { color: var(--good); }
.bad { color: var(--bad); }
.tiles { display: flex; flex-wrap: wrap; gap: 0.8rem; }
figure { margin: 0; max-width: 100%; }
figure img { image-rendering: pixelated; max-width: 100%; display: block; }
figcaption { font-size: 13px; }
"""
LEGEND = "<p>Pictures: dark is the smallest value, yellow the largest, red NaN or infinity.</p>\n"
_escaped = html.escape


def write_run_page(path: Path, run: Path) -> None:
    """Add the folder of a run to the page, or write its section again. Raises OSError."""
    with _locked(path.parent):
        known = dict(_SECTION.findall(path.read_text("utf-8", "replace") if path.exists() else ""))
        rows: list[str] = []
        sections: list[str] = []
        known.pop(run.name, None)
        for one in reversed(numbered_runs(path.parent)):
            if not (one / RESULT).exists():  # no command has made this folder
                continue
            if len(sections) == _RUNS_SHOWN:
                rows.append(_row_and_section(one, f"{one.name}/", "")[0])
                continue
            row, section = _row_and_section(one, f"#run-{one.name}", known.get(one.name))
            rows.append(row)
            sections.append(f"<details{'' if sections else ' open'}>{section}</details>\n")
        heads = "".join(f"<th>{name}</th>" for name in ("run", "result", "cases", "started"))
        body = (
            "<p>The newest run comes first. The commands on this page work in its folder.</p>\n"
            f"<table>\n<tr>{heads}</tr>\n{''.join(rows)}</table>\n{''.join(sections)}"
        )
        write_text(path, static_page(f"Runs in {path.parent.name}", body, f"{PAGE_MARK}\n"))


def static_page(title: str, body: str, mark: str = "") -> str:
    """Return a page. ``title`` is text, ``body`` and the ``mark`` in the head are HTML."""
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n{mark}'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{_escaped(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        f"<h1>{_escaped(title)}</h1>\n{body}</body>\n</html>\n"
    )


def dump_section(dump: TaskDump, dtype: str | None = None) -> str:
    """Return the description of a task and pictures of its arrays as HTML."""
    figures = []
    for one in dump.arguments:
        values = shown_values(dump, one, dtype)
        cells = np.zeros((0, 0)) if values is None else shades(values, _ROWS, _COLUMNS)
        if cells.size:
            figures.append(_figure(f"{one.argument}: {one.name or 'memory'}", cells))
    return _text_and_figures(described(dump, dtype, with_pictures=False), figures)


def difference_section(dump: TaskDump, found: Comparison) -> str:
    """Return the differences between two dumps of a task, with pictures, as HTML."""
    parts = [f"<pre>{_escaped(chr(10).join(found.summary(dump)))}</pre>\n"]
    for array in found.arrays:
        pictures = array.pictures(_ROWS // 2, _COLUMNS // 2).items()  # one element is visible
        figures = [
            _figure(f"{array.name}, {side}", cells) for side, cells in pictures if cells.size
        ]
        parts.append(_text_and_figures("\n".join(array.lines(with_picture=False)), figures))
    return "".join(parts)


def _text_and_figures(text: str, figures: Iterable[str]) -> str:
    return f'<pre>{_escaped(text)}</pre>\n<div class="tiles">{"".join(figures)}</div>\n'


def _row_and_section(run: Path, link: str, known: str | None) -> tuple[str, str]:
    """Return the row and the section of a run. ``known``: its section; empty: it needs none."""
    file = run / RESULT
    try:
        with refusing_damage(file, "the result of a run", "run the command again"):
            result = json.loads(file.read_bytes())
            if result["version"] != SCHEMA_VERSION:
                raise ValueError(f"its version is {result['version']}")
            verdict = _verdict_of_run(result)
            names = ", ".join(case["case"] for case in result["cases"])
            about = f"{verdict}, {duration(result['seconds'])}"
            row = _row(run.name, link, about, names, result["started"])
            if known is None or (known and result["exit_code"] is None):
                known = _section_text(run, result)
    except (OSError, PtoError) as error:
        verdict = '<span class="bad">not readable</span>'
        row = _row(run.name, link, verdict, "", "")
        known = f'<p id="run-{run.name}" class="bad">{_escaped(str(error))}</p>\n'
    heading = f"<summary><h2>Run {run.name}: {verdict}</h2></summary>"
    return row, f"{heading}\n<!-- run {run.name} -->\n{known}<!-- end of run -->\n"


def _section_text(run: Path, result: Mapping[str, Any]) -> str:
    try:
        return "".join(f"{part}\n" for part in _section(run, result))
    except OSError as error:  # such as a file that a run at the same time has removed
        return f'<p id="run-{run.name}" class="bad">{_escaped(str(error))}</p>\n'


def _section(run: Path, result: Mapping[str, Any]) -> Iterator[str]:
    """Yield the parts of the section of a run."""
    yield f'<p id="run-{run.name}">{_escaped(result["started"])}, {duration(result["seconds"])}</p>'
    yield f'<pre class="wide">{_escaped(result["command"])}</pre>'
    for case in result["cases"]:
        tasks = "" if case["tasks"] is None else ", " + _counted(case["tasks"], "task")
        where = f"{case['backend']}, {case['runtime']}, device {case['device']}"
        about = _escaped(f"{case['case']}: {where}{tasks}, {duration(case['wall'])}")
        success = "passed" if case["compared"] else "ran (not compared)"
        yield f"<p>{_verdict(case['exit_code'], success)} {about}</p>"
        yield from map(_failure, case["errors"])
    if result["error"]:
        yield _failure(result["error"])
    entries = sorted(run.iterdir())
    yield "<h3>Files</h3>\n<ul>"
    yield from map(_file, entries)
    yield "</ul>"
    for entry in entries:
        if entry.name.endswith(".trace.npz"):
            yield f"<h3>{_escaped(entry.name)}: where the time went</h3>"
            yield f"<pre>{_escaped(_summary(entry))}</pre>"
    for entry in entries:
        if entry.is_dir():
            yield f"<h3>{_escaped(entry.name)}: the arrays of the tasks</h3>\n{LEGEND}"
            yield from _dumps(entry)
    if (run / LOG).exists():
        text = (run / LOG).read_bytes()[-_LOG_BYTES:].decode("utf-8", "replace")
        yield f"<h3>The end of {LOG}</h3>\n<pre>{_escaped(text)}</pre>"


def _dumps(folder: Path) -> Iterator[str]:
    """Yield the first tasks. A large one has only a link."""
    files = sorted(folder.glob("*.npz"), key=lambda file: (_task_number(file), file.name))
    for number, file in enumerate(files):
        if number == _TASKS_SHOWN:
            path = _escaped(shlex.quote(f"{folder.parent.name}/{folder.name}"))
            yield f"<p>and {len(files) - number:,} more: <code>pto dump show {path}</code></p>"
            return
        yield f"<ul>{_file(file, f'{folder.parent.name}/{folder.name}')}</ul>"
        if file.stat().st_size > _BYTES_SHOWN:
            yield "<p>The arrays are too large for this page.</p>"
            continue
        try:
            with refusing_damage(file, "the dump of a task", "write one with pto run --dump"):
                section = dump_section(TaskDump.read(file))
            yield section
        except (OSError, PtoError) as error:
            yield f'<p class="bad">{_escaped(str(error))}</p>'


def _task_number(file: Path) -> int:
    found = re.search("#([0-9]+)", file.name)
    return int(found[1]) if found else 1 << 62


def _file(file: Path, folder: str = "") -> str:
    """Return a link to a file or folder in the folder of a run."""
    path = f"{folder or file.parent.name}/{file.name}"
    if file.is_dir():
        size = _counted(len(list(file.iterdir())), "file")
        what = "the arrays of tasks: <code>pto dump show {}</code>"
    else:
        size = f"{file.stat().st_size:,} bytes"
        what = next((what for end, what in _FILES if file.name.endswith(end)), "")
    link = f'<a href="{quote(os.fsencode(path))}">{_escaped(file.name)}</a>'
    return f"<li>{link}, {size}: {what.replace('{}', _escaped(shlex.quote(path)))}</li>"


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}{'s' * (number != 1)}"


def _summary(file: Path) -> str:
    try:
        with refusing_damage(file, "a trace", "write one with pto run --trace"):
            trace = read_any_data(file)
            if isinstance(trace, WorkerTraceData):
                return worker_summary(trace)
            return summary_text(trace)
    except (OSError, PtoError) as error:
        return str(error)


def _row(number: str, link: str, verdict: str, cases: str, started: str) -> str:
    cells = (f'<a href="{link}">{number}</a>', verdict, _escaped(cases), _escaped(started))
    return f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>\n"


def _verdict(exit_code: int | None, success: str = "passed") -> str:
    if exit_code is None:
        return "has not ended"
    kind, text = ("bad", "failed") if exit_code else ("good", success)
    return f'<span class="{kind}">{text}</span>'


def _verdict_of_run(result: Mapping[str, Any]) -> str:
    return _verdict(result["exit_code"], "passed" if result["cases"] else "ended")


def _failure(error: Mapping[str, Any]) -> str:
    return f'<pre class="bad">{_escaped(chr(10).join([error["message"], *error["notes"]]))}</pre>'


def _figure(name: str, cells: Values) -> str:
    rows, columns = cells.shape
    scale = max(1, _COLUMNS // columns)
    size = f'width="{columns * scale}" height="{max(12, rows * min(scale, 16))}"'
    picture = base64.b64encode(_png(cells)).decode()
    text = _escaped(name)
    image = f'<img {size} alt="{text}" src="data:image/png;base64,{picture}">'
    return f"<figure>{image}<figcaption>{text}</figcaption></figure>"


def _png(cells: Values) -> bytes:
    """Return a picture with a pixel for each cell, from 0 to 1 or NaN."""
    stops = np.linspace(0, 1, len(_COLOURS))
    pixels = np.stack([np.interp(cells, stops, channel) for channel in _COLOURS.T], axis=-1)
    pixels[np.isnan(cells)] = _NOT_FINITE
    height, width = cells.shape
    lines = np.zeros((height, 1 + 3 * width), "u1")  # each line begins with its filter, 0
    lines[:, 1:] = pixels.reshape(height, -1)
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", head), (b"IDAT", zlib.compress(lines.tobytes())), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunks(chunks))


def _chunks(chunks: Iterable[tuple[bytes, bytes]]) -> Iterator[bytes]:
    for kind, data in chunks:
        check = struct.pack(">I", zlib.crc32(kind + data))
        yield struct.pack(">I", len(data)) + kind + data + check


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Let the commands that add a run to the page at the same time wait for each other."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
