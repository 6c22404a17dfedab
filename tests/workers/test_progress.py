"""The progress display of a run, on a real terminal and elsewhere."""

from __future__ import annotations

import os
import pty
import re
import select
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from pto_core import Out, task
from pto_core.errors import TaskFailedError
from pto_core.progress import Follower, PlainLines, Progress, TerminalBar

SOON_S = 20.0
HIDDEN, SHOWN = "\x1b[?25l", "\x1b[?25h"
CONTROL = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])|([\r\n])")


@task
def write(value: int, out: Out) -> None:
    out[:] = value


@task
def fail(out: Out) -> None:
    raise ValueError("no luck")


class Terminal:
    """A pty whose controlling end is read continuously, so that no writer blocks.

    As a context manager, it replaces standard error.
    """

    def __init__(self) -> None:
        self._reading, writing = pty.openpty()
        self.file = os.fdopen(writing, "w", buffering=1)
        self._bytes = bytearray()
        self._is_over = threading.Event()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        """Read until close(); children may have inherited the other end and keep it open."""
        while True:
            is_last = self._is_over.is_set()
            ready, _, _ = select.select([self._reading], [], [], 0 if is_last else 0.01)
            if ready:
                self._bytes += os.read(self._reading, 4096)
            elif is_last:
                return

    def __enter__(self) -> None:
        self._before, sys.stderr = sys.stderr, self.file

    def __exit__(self, *error: object) -> None:
        sys.stderr = self._before

    @property
    def text(self) -> str:
        return self._bytes.decode(errors="replace")

    def await_text(self, text: str) -> None:
        limit = time.monotonic() + SOON_S
        while text not in self.text:
            assert time.monotonic() < limit, self.text
            time.sleep(1e-3)

    def end_with(self, text: str) -> str:
        """Write a last line, wait until it has arrived, and return all output."""
        self.file.write(text + "\n")
        self.await_text(text)
        self.close()
        return self.text

    def close(self) -> None:
        if not self.file.closed:
            self._is_over.set()
            self._reader.join()
            self.file.close()
            os.close(self._reading)


def screen(text: str) -> list[str]:
    """Return the lines that a terminal shows after it has received this text."""
    lines, row, at, column = [""], 0, 0, 0
    for control in CONTROL.finditer(text + "\r"):
        written = text[at : control.start()]
        lines[row] = (
            lines[row][:column].ljust(column) + written + lines[row][column + len(written) :]
        )
        at, column = control.end(), column + len(written)
        count, command, moved = control.groups()
        if moved == "\n":
            row += 1
            lines += [""] * (row + 1 - len(lines))
        elif moved == "\r":
            column = 0
        elif command == "A":
            row -= int(count or 1)
        elif command == "K":
            assert count == "2"
            lines[row] = ""
        else:
            assert command in "mhl", control
    return [line.rstrip() for line in lines if line.strip()]


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    """Provide a terminal, without variables of the environment that change its output."""
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "LINES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    made = Terminal()
    yield made
    made.close()


def check_is_cleared(terminal: Terminal) -> None:
    """Check that later output begins on an empty line, and that the cursor is visible again."""
    text = terminal.end_with("what follows")
    assert screen(text) == ["what follows"], text
    assert text.count(HIDDEN) == text.count(SHOWN) == 1
    assert text.index(HIDDEN) < text.index(SHOWN)


def test_a_terminal_shows_a_bar_during_a_run(make: Any, terminal: Terminal) -> None:
    worker = make(num_sub_workers=1)
    rows = worker.shared_array((3, 8))
    with terminal, worker.session(progress=True) as s:
        for i, row in enumerate(rows[:2]):
            s.submit(write, i, row).wait()
        terminal.await_text("2/2")
        s.submit(write, 2, rows[2])
        terminal.await_text("/3")
        (line,) = screen(terminal.text)
        assert re.match(r"L3 ━+╸? +[23]/3 +0:00:\d\d$", line), line
    terminal.await_text("3/3")
    check_is_cleared(terminal)


def test_a_terminal_is_restored_after_a_block_that_raises(make: Any, terminal: Terminal) -> None:
    worker = make(num_sub_workers=1)
    row = worker.shared_array((8,))
    with pytest.raises(KeyError), terminal, worker.session(progress=True) as s:  # noqa: PT012
        s.submit(write, 1, row).wait()
        terminal.await_text("1/1")
        raise KeyError("mine")
    check_is_cleared(terminal)


def test_a_terminal_shows_failures_and_is_restored(make: Any, terminal: Terminal) -> None:
    worker = make(num_sub_workers=1)
    row = worker.shared_array((8,))
    with pytest.raises(TaskFailedError), terminal, worker.session(progress=True) as s:
        s.submit(fail, row)
    terminal.await_text("1 failed")
    check_is_cleared(terminal)


def test_a_terminal_is_restored_if_no_output_can_follow(
    make: Any, terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = make(num_sub_workers=1)

    def no_thread(self: Follower) -> None:
        raise RuntimeError("no more threads")

    worker.init()
    monkeypatch.setattr(Follower, "start", no_thread)
    with terminal:
        with pytest.raises(RuntimeError, match="no more threads"), worker.session(progress=True):
            pass
        assert sys.stderr is terminal.file
    text = terminal.end_with("what follows")
    assert screen(text) == ["what follows"], text
    assert text.count(HIDDEN) == text.count(SHOWN)


def test_a_process_forked_while_a_bar_is_drawn_prints_past_it(terminal: Terminal) -> None:
    with terminal:
        bar = TerminalBar("L3")
        bar(Progress(2, 1, 0))
        # standard error is replaced, so that printed text appears above the bar
        assert sys.stderr is not terminal.file
        child = os.fork()
        if child == 0:
            os._exit(sys.stderr is not terminal.file)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        bar(Progress(2, 2, 0, is_over=True))
        assert sys.stderr is terminal.file
    check_is_cleared(terminal)


def test_a_terminal_is_restored_if_the_count_fails(terminal: Terminal) -> None:
    def source() -> Progress:
        raise RuntimeError("no count is shown")

    with terminal:
        follower = Follower(source, TerminalBar("L3"))
        follower.start()
        for thread in threading.enumerate():
            if thread.name == "pto progress":
                thread.join(SOON_S)
        with pytest.raises(RuntimeError, match="no count is shown"):
            follower.stop(Progress(1, 1, 0, is_over=True))
    check_is_cleared(terminal)


def test_elsewhere_there_are_plain_lines(make: Any, capfd: pytest.CaptureFixture[str]) -> None:
    worker = make(num_sub_workers=1)
    rows = worker.shared_array((2, 8))
    with pytest.raises(TaskFailedError), worker.session(progress=True) as s:  # noqa: PT012
        s.submit(write, 1, rows[0])
        s.submit(fail, rows[1])
    with worker.session() as s:
        s.submit(write, 1, rows[0])
    output, errors = capfd.readouterr()
    assert output == ""
    *earlier, last = errors.splitlines()
    assert last == "L3: 2 of 2 tasks, 1 failed"
    assert all(re.fullmatch(r"L3: \d of \d tasks(, 1 failed)?", line) for line in earlier)


def test_the_last_line_is_printed_at_once(capfd: pytest.CaptureFixture[str]) -> None:
    lines = PlainLines("L3")
    lines(Progress(2, 1, 0))
    lines(Progress(3, 2, 0))  # not printed: less than a second has passed since the last line
    lines(Progress(3, 3, 1, is_over=True))
    assert capfd.readouterr().err.splitlines() == [
        "L3: 1 of 2 tasks",
        "L3: 3 of 3 tasks, 1 failed",
    ]
