"""Show a run to the user: progress on standard error, results on standard output.

On a terminal: a progress bar that disappears, then a table for each case. Otherwise: plain lines.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pto_core import log
from pto_core.cases.report import CaseReport, CoreShare
from pto_core.cases.supervisor import Listener
from pto_core.cli.show import counter_rows, duration
from pto_core.errors import PtoError

_DOING = {
    "loading": "loading",
    "compile": "compiling",
    "open": "opening the device",
    "inputs": "making inputs",
    "run": "running",
    "reference": "computing the reference",
    "compare": "comparing",
    "explain": "running again to explain the wrong output",
}


def make_display(*, quiet: bool, silent: bool, verbose: bool) -> Display:
    """Return a silent display, or the display that suits a terminal or plain output."""
    if silent:
        return Display()
    if sys.stderr.isatty() and sys.stdout.isatty() and not (quiet or log.is_json()):
        return TerminalDisplay(verbose)
    return PlainDisplay(quiet, verbose)


class Display(Listener):
    """A display that shows only errors; the base of the other displays."""

    def finished(self, report: CaseReport) -> None:
        """Show the errors of the case."""
        _print_errors(report)

    def close(self) -> None:
        """Restore the terminal; a second call has no effect."""


class PlainDisplay(Display):
    """A display of plain lines, for files, pipes and CI logs."""

    def __init__(self, quiet: bool, verbose: bool) -> None:
        self._quiet = quiet
        self._verbose = verbose

    def event(self, event: Mapping[str, Any]) -> None:
        """Print a line for each compiled source and for each case that starts."""
        if self._quiet:
            return
        if event["event"] == "source" and event["state"] == "built":
            name = Path(event["source"]).name
            count = f"{event['done']} of {event['total']}"
            self._say(f"compiled {name} ({count}, {duration(event['seconds'])})")
        elif event["event"] == "case":
            self._say(f"running {event['case']} on {event['backend']}, {event['runtime']}")

    def output(self, text: str) -> None:
        """Print a line of the child."""
        log.relay(text)

    def finished(self, report: CaseReport) -> None:
        """Print the report of a case: one line if quiet, otherwise several lines."""
        print("\n".join([headline(report)] if self._quiet else lines(report, self._verbose)))
        sys.stdout.flush()
        _print_errors(report)

    def _say(self, text: str) -> None:
        log.show(text)


class TerminalDisplay(Display):
    """A progress bar during the run, then a table for each case."""

    def __init__(self, verbose: bool) -> None:
        self._verbose = verbose
        self._progress: Any = None
        self._task: Any = None

    def started(self) -> None:
        """Start the progress bar."""
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[count]}"),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            transient=True,
            auto_refresh=False,
        )
        self._task = self._progress.add_task("starting", total=None, count="")
        self._progress.start()

    def event(self, event: Mapping[str, Any]) -> None:
        """Show the current step of the run and its progress."""
        if self._progress is None:
            return
        kind = event["event"]
        if kind == "source":
            count = f"{event['done']}/{event['total']} {Path(event['source']).name}"
            self._show("compiling", event["done"], event["total"], count)
        elif kind == "case":
            self._show(f"case {event['case']}", 0, None, "")
        elif kind == "phase" and event["phase"] == "run":
            count = f"run {event['repeat']}/{event['repeats']}"
            self._show("running", event["repeat"] - 1, event["repeats"], count)
        elif kind == "phase":
            self._show(_DOING.get(event["phase"], event["phase"]), 0, None, "")

    def output(self, text: str) -> None:
        """Print a line of the child above the bar."""
        if self._progress is None:
            log.relay(text)
        else:
            self._progress.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def finished(self, report: CaseReport) -> None:
        """Print the report of a case as a table."""
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        self._hide()
        style = "green" if report.passed else "red"
        table = Table(title=Text(headline(report), style=style), show_header=False)
        table.add_column(style="bold", no_wrap=True)
        table.add_column()
        for label, text in rows(report, self._verbose):
            table.add_row(label, Text(text))
        Console().print(table)
        _print_errors(report)

    def tick(self) -> None:
        """Redraw the bar."""
        if self._progress is not None:
            self._progress.refresh()

    def close(self) -> None:
        """Remove the bar and show the cursor again."""
        self._hide()

    def _show(self, what: str, done: int, total: int | None, count: str) -> None:
        self._progress.update(
            self._task, description=what, completed=done, total=total, count=count
        )

    def _hide(self) -> None:
        if self._progress is not None:
            self._progress.stop()
            self._progress = None


def headline(report: CaseReport) -> str:
    """Return one line that names the case and its result."""
    verdict = "failed"
    if report.passed:
        verdict = "passed" if report.compared else "ran (not compared)"
    kind = "device" if report.process is None else report.process.label
    place = f"{report.backend}, {report.runtime}, {kind} {report.device}"
    return f"{report.case}: {verdict} ({place})"


def lines(report: CaseReport, verbose: bool) -> list[str]:
    """Return the headline of a report and its facts as lines."""
    found = rows(report, verbose)
    width = max(len(label) for label, _ in found)
    return [headline(report), *(f"  {label:<{width}}  {text}" for label, text in found)]


def rows(report: CaseReport, verbose: bool) -> list[tuple[str, str]]:
    """Return the known facts of a report, each as a pair of label and text."""
    found = [("tasks", f"{report.tasks:,}")] if report.tasks is not None else []
    found.append(("wall", duration(report.wall)))
    if report.run is not None and report.build is not None and report.copy is not None:
        parts = {
            "compile": report.compile,
            "build": report.build,
            "run": report.run,
            "copy": report.copy,
        }
        best = ", fastest of the runs" if len(report.repeats) > 1 else ""
        split = ", ".join(f"{name} {duration(value)}" for name, value in parts.items())
        found[-1] = ("wall", f"{duration(report.wall)}: {split}{best}")
    if report.seeds is not None:
        traces = "" if report.traces is None else f", {report.traces} distinct trace hashes"
        found.append(("seeds", f"{report.seeds} run{traces}"))
    if report.cores:
        found.append(("cores", "; ".join(_share(share) for share in report.cores)))
    if report.outputs:
        worst = max(report.outputs, key=lambda output: output.max_error)
        found.append(
            (
                "largest error",
                f"{worst.max_error:g} in {worst.name} (rtol {worst.rtol:g}, atol {worst.atol:g})",
            )
        )
    found += [("record", line) for line in report.record]
    found += [("file", path) for path in report.files]
    return [*found, *_details(report)] if verbose else found


def _share(share: CoreShare) -> str:
    name = share.core_type.upper()
    busy = f", {100 * share.busy:.1f} % busy" if share.used else ""
    return f"{name} {share.used} of {share.total} used{busy}"


def _dispatches(share: CoreShare) -> str:
    """Return a text with the number of tasks of a core type, and the number on each used core."""
    if not share.tasks:
        return "0"
    last = max(core for core, tasks in enumerate(share.dispatches) if tasks)
    return f"{share.tasks:,}: {' '.join(map(str, share.dispatches[: last + 1]))}"


def _details(report: CaseReport) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for index, times in enumerate(report.repeats if len(report.repeats) > 1 else ()):
        text = f"build {duration(times.build)}, run {duration(times.run)}"
        found.append((f"run {index + 1}", f"{text}, copy {duration(times.copy)}"))
    if report.copies is not None:
        copies = report.copies
        found.append(("copied in", f"{copies.copies_in} copies, {copies.bytes_in:,} bytes"))
        found.append(("copied out", f"{copies.copies_out} copies, {copies.bytes_out:,} bytes"))
    if report.api is not None:
        found.append(("interface", report.api))
    if report.process is not None:
        process = report.process
        found.append(("process", f"{process.number} of ELF machine {process.machine}"))
    if report.peak_bytes is not None:
        found.append(("device memory", f"{report.peak_bytes:,} bytes at most"))
    if report.trace_hash is not None:
        found.append(("trace hash", report.trace_hash))
    for share in report.cores:
        found.append((f"{share.core_type.upper()} tasks", _dispatches(share)))
    found += _kernel_rows(report)
    for output in report.outputs:
        shape = " x ".join(map(str, output.shape)) or "scalar"
        text = f"{shape} {output.dtype}, largest error {output.max_error:g}"
        found.append((f"output {output.name}", f"{text}, {output.mismatches} wrong"))
    if report.compared:
        found.append(("reference", duration(report.reference)))
    counts = {name: value for name, value in report.statistics.items() if name != "tasks"}
    return [*found, *counter_rows(counts)]


def _kernel_rows(report: CaseReport) -> list[tuple[str, str]]:
    rows = []
    for kernel in report.kernels:
        times = [
            ("mean", kernel.mean),
            ("p50", kernel.p50),
            ("p99", kernel.p99),
            ("max", kernel.max),
        ]
        text = f"{kernel.tasks:,} tasks, {duration(kernel.total)}; "
        text += ", ".join(f"{name} {duration(value)}" for name, value in times)
        rate = "" if kernel.gb_per_s is None else f", {kernel.gb_per_s:.3g} GB/s"
        rows.append((f"kernel {kernel.name}", f"{text}; {kernel.cores} cores{rate}"))
    return rows


def _print_errors(report: CaseReport) -> None:
    for error in report.errors:
        log.show(f"{report.case}: {with_notes(error)}", "error")


def with_notes(error: PtoError) -> str:
    """Return the message of an error and its notes."""
    return "\n".join([error.message, *getattr(error, "__notes__", ())])
