"""The files of a trace, and the commands that read them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pto_core.cli.main import main
from pto_core.errors import UsageError
from pto_insight.traces import Trace
from pto_insight.traces.files import read_trace, write_trace
from pto_insight.traces.records import RECORD, TASK


@pytest.fixture
def trace() -> Trace:
    tasks = np.array([(0, 0, 7, -1, 1, 0, 0, 5, 6, 10, 30, 40, -1)], TASK)
    return Trace(
        np.zeros(0, RECORD), tasks, ("add",), {"scheduler 0": 2}, 2, "ns", 9, 1, "a2a3sim", "x"
    )


def test_a_trace_is_read_as_it_was_written(trace: Trace, tmp_path: Path) -> None:
    path, *_ = write_trace(trace, tmp_path / "new" / "run.1")
    assert path.name == "run.1.trace.npz"
    again = read_trace(path)
    assert again.tasks.tolist() == trace.tasks.tolist()
    assert (again.kernels, again.lost, again.note) == (trace.kernels, trace.lost, trace.note)
    assert read_trace(path.parent).epoch_ns == 9


def test_a_folder_must_have_one_trace(trace: Trace, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"contains 0 traces \(none\)"):
        read_trace(tmp_path)
    write_trace(trace, tmp_path / "a")
    write_trace(trace, tmp_path / "b")
    with pytest.raises(UsageError, match=r"2 traces \(a.trace.npz, b.trace.npz\); pass the path"):
        read_trace(tmp_path)


@pytest.mark.parametrize("content", [b"", b"no archive", b"PK\x03\x04 broken"])
def test_another_file_is_no_trace(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.trace.npz"
    path.write_bytes(content)
    with pytest.raises(UsageError, match="is not a trace of this version"):
        read_trace(path)


def test_an_archive_without_records_is_no_trace(tmp_path: Path) -> None:
    path = tmp_path / "x.trace.npz"
    np.savez(path, other=np.zeros(3))
    with pytest.raises(UsageError, match="is not a trace of this version"):
        read_trace(path)


def test_the_commands_print_a_summary_and_a_comparison(
    trace: Trace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, *_ = write_trace(trace, tmp_path / "a")
    assert main(["trace", "summary", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert "1 task in 30 ns" in printed
    assert "host time on 1 thread, not the chip's" in printed
    assert main(["trace", "diff", str(path), str(path)]) == 0
    assert "whole run: 30 ns -> 30 ns +0.0 %" in capsys.readouterr().out
    assert main(["trace", "summary", str(tmp_path / "missing.npz")]) == 2
