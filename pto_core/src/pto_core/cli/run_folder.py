"""The files of one command: ``--out DIR`` has a folder for each, ``DIR/1``, ``DIR/2``, ...

``run.json`` in such a folder has the command and its result. ``log.txt`` has the output of the
cases (standard output and standard error) and their results. ``DIR/index.html`` shows and links the
files of all folders.
"""

from __future__ import annotations

import contextlib
import json
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from pto_core import log
from pto_core.cases.report import SCHEMA_VERSION, CaseReport, error_to_json
from pto_core.cli.case_display import lines, with_notes
from pto_core.cli.main import exit_code_of
from pto_core.errors import PtoError, UsageError
from pto_core.output_files import next_run_folder, write_text
from pto_core.plugins import insight

RESULT = "run.json"
LOG = "log.txt"
PAGE = "index.html"
PAGE_MARK = '<meta name="generator" content="pto run">'
"""The text in the page of all runs that tells it from a page of the user."""


class RunFolder:
    """A new folder ``path`` in ``out``. As a context, it writes the result and the page at the end.

    Raises UsageError if a file cannot be written; an exception of the block gets a note instead.
    ``has_page``: whether the page shows the result of the run.
    """

    def __init__(self, out: Path) -> None:
        self._out = out.absolute()
        self.page = self._out / PAGE
        self.has_page = False
        self._command = shlex.join(["pto", *sys.argv[1:]])  # a traced program changes sys.argv
        self._started = time.time()
        self._reports: list[CaseReport] = []
        try:
            if self.page.exists() and PAGE_MARK.encode() not in self.page.read_bytes():
                raise UsageError(
                    f"{self.page} is another page, which the page of the runs would replace; "
                    "use another --out folder",
                    name="out",
                    value=str(out),
                )
            self.path = next_run_folder(self._out)
            self._write_result(document((), None) | {"exit_code": None})
        except OSError as error:
            raise not_written(out, error) from error

    def log(self, text: str) -> None:
        """Add lines to the log. An error does not end the run; the result is written later."""
        with contextlib.suppress(OSError), (self.path / LOG).open("ab") as file:
            file.write(f"{text}\n".encode(errors="backslashreplace"))

    def add(self, report: CaseReport) -> None:
        """Keep the report of a case that has ended."""
        self._reports.append(report)
        errors = (f"{report.case}: {with_notes(error)}" for error in report.errors)
        self.log("\n".join([*lines(report, verbose=True), *errors]))

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        try:
            self._write_result(document(self._reports, error))
            if insight.is_installed():
                self._write_page()
        except OSError as problem:
            unwritten = not_written(self._out, problem)
            if error is None:
                raise unwritten from problem
            error.add_note(unwritten.message)

    def _write_page(self) -> None:
        try:
            insight.write_run_page(self.page, self.path)
            self.has_page = True
        except OSError:
            raise
        except Exception as problem:  # noqa: BLE001 - the result of the run is shown nevertheless
            text = f"{self.page} does not show this run: {type(problem).__name__}: {problem}"
            log.show(f"pto: warning: {text}", "warn")

    def _write_result(self, result: dict[str, Any]) -> None:
        about = {
            "command": self._command,
            "started": time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self._started)),
            "seconds": time.time() - self._started,
        }
        write_text(self.path / RESULT, json.dumps(about | result, indent=2) + "\n")


def document(reports: Sequence[CaseReport], error: BaseException | None) -> dict[str, Any]:
    """Return the object that ``pto run --json`` prints."""
    code = 0 if error is None else exit_code_of(error)
    if error is None or isinstance(error, PtoError):  # any other exception ends the command
        code = max([code, *(report.exit_code for report in reports)])
    return {
        "version": SCHEMA_VERSION,
        "exit_code": code,
        "error": None if error is None else _error_to_json(error),
        "cases": [report.to_json() for report in reports],
    }


def not_written(out: Path, error: OSError) -> UsageError:
    """Return the error for a folder that cannot be written."""
    return UsageError(
        f"{out} cannot be written: {error}; use another --out folder", name="out", value=str(out)
    )


def _error_to_json(error: BaseException) -> dict[str, Any]:
    shown = error
    if not isinstance(shown, PtoError):
        shown = PtoError(f"{type(error).__name__}: {error}".removesuffix(": "))
        for note in getattr(error, "__notes__", ()):
            shown.add_note(note)
    return error_to_json(shown) | {"exit_code": exit_code_of(error)}
