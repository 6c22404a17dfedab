"""Report the progress of a run: by a bar, by plain lines, or to a function."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from typing import Any, TextIO

from pto_core.errors.limits import start_thread
from pto_core.errors.plain_functions import require_plain
from pto_core.notebooks import OutputInPlace, is_of_notebook

_INTERVAL_S = 0.1
_LINE_INTERVAL_S = 1.0


@dataclass(frozen=True)
class Progress:
    """The progress of a run. ``submitted`` increases while the run is open.

    ``noun``: what the numbers count.
    """

    submitted: int
    finished: int
    failed: int
    is_over: bool = False
    noun: str = "tasks"


Listener = Callable[[Progress], None]
Source = Callable[[], Progress]

# For each bar that is shown: the standard output and error streams that it has replaced.
_behind_bars: dict[TerminalBar, tuple[TextIO, TextIO]] = {}


def _leave_bars() -> None:
    """Restore the streams in a forked process, which shows no bar."""
    if _behind_bars:
        sys.stdout, sys.stderr = next(iter(_behind_bars.values()))
        _behind_bars.clear()


os.register_at_fork(after_in_child=_leave_bars)


def default_listener(label: str) -> Listener:
    """Return a bar in a notebook or on a terminal, otherwise a printer of plain lines."""
    if is_of_notebook(sys.stderr):
        return NotebookBar(label)
    return TerminalBar(label) if sys.stderr.isatty() else PlainLines(label)


class PlainLines:
    """Prints a line at most once a second if the progress has changed, and a line at the end."""

    def __init__(self, label: str) -> None:
        self._label = label
        self._last = ""
        self._next_s = 0.0

    def __call__(self, progress: Progress) -> None:
        """Print a line if the interval has passed and the progress has changed."""
        now = time.monotonic()
        text = _counts(self._label, progress)
        if text != self._last and (progress.is_over or now >= self._next_s):
            sys.stderr.write(text + "\n")
            sys.stderr.flush()
            self._last, self._next_s = text, now + _LINE_INTERVAL_S


class NotebookBar:
    """A bar in the output of a cell. It stays there after the run."""

    def __init__(self, label: str) -> None:
        self._label = label
        self._output = OutputInPlace()

    def __call__(self, progress: Progress) -> None:
        """Update the bar."""
        text = _counts(self._label, progress)
        bar = (
            f"<progress value='{progress.finished}' max='{max(progress.submitted, 1)}'></progress>"
        )
        self._output.show(f"{bar} {escape(text)}", text)


def _counts(label: str, progress: Progress) -> str:
    failed = f", {progress.failed} failed" if progress.failed else ""
    return f"{label}: {progress.finished} of {progress.submitted} {progress.noun}{failed}"


class TerminalBar:
    """A bar that appears at the first call and disappears at the end of the run."""

    def __init__(self, label: str) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress as Bar,
            TextColumn,
            TimeElapsedColumn,
        )

        self._bar = Bar(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[failed]}"),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            transient=True,
            auto_refresh=False,
        )
        self._task = self._bar.add_task(label, total=None, failed="")

    def __call__(self, progress: Progress) -> None:
        """Update the bar."""
        _behind_bars.setdefault(self, (sys.stdout, sys.stderr))
        self._bar.start()
        failed = f"{progress.failed} failed" if progress.failed else ""
        self._bar.update(
            self._task, completed=progress.finished, total=progress.submitted, failed=failed
        )
        self._bar.refresh()
        if progress.is_over:
            self._bar.stop()
            _behind_bars.pop(self, None)


class Follower:
    """A thread that calls a listener with the progress of a run ten times a second.

    If the listener raises an exception, the calls end, but the run continues; :meth:`stop` raises
    the exception.
    """

    def __init__(self, source: Source, listener: Listener) -> None:
        require_plain("progress", listener)
        self._source = source
        self._listener = listener
        self._error: BaseException | None = None
        self._is_heard = True
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="pto progress", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        start_thread(self._thread)

    def stop(self, last: Progress) -> None:
        """End the thread, and call the listener a last time, with ``last``."""
        self._is_over.set()
        self._thread.join()
        if self._is_heard:
            self._listener(last)
        if self._error is not None:
            raise self._error

    def _follow(self) -> None:
        last: Any = None
        try:
            while not self._is_over.wait(_INTERVAL_S):
                progress = self._source()
                if progress != last:
                    self._is_heard = False  # stays False if the listener raises an exception
                    self._listener(progress)
                    self._is_heard = True
                    last = progress
        except BaseException as error:  # noqa: BLE001 - stop() raises it
            self._error = error
