"""The relay writes printed text without waiting for the stream."""

from __future__ import annotations

import os
import time

from pto_transport_zmq.remote.relay import OutputWriter

LINE = "a" * 99 + "\n"
WAIT_S = 30.0


def test_a_pipe_that_is_not_read_drops_lines_and_reports_how_many() -> None:
    read_end, write_end = os.pipe()
    writer = OutputWriter(write_end, "L4/host0", most_bytes=1 << 20)
    count = 30_000  # lines of 100 bytes: more than the pipe and the writer hold
    for _ in range(count):
        writer.write(LINE)
    writer.finish(0.01)
    text, total = b"", 0
    while total < count:
        text += os.read(read_end, 1 << 16)
        lines = text.decode().splitlines(keepends=True)
        reports = [line for line in lines if "dropped" in line and line.endswith("\n")]
        total = lines.count(LINE) + sum(int(line.split()[1]) for line in reports)
    assert total == count
    assert reports
    assert set(lines) == {LINE, *reports}
    assert all(report.startswith("[L4/host0] ") for report in reports)
    os.close(read_end)
    os.close(write_end)


def test_a_pipe_without_a_reader_raises_no_error() -> None:
    read_end, write_end = os.pipe()
    writer = OutputWriter(write_end, "L4/host0")
    os.close(read_end)
    writer.write(LINE)
    writer.finish(WAIT_S)
    os.close(write_end)


def test_all_text_is_written_in_order() -> None:
    read_end, write_end = os.pipe()
    writer = OutputWriter(write_end, "L4/host0")
    for index in range(1000):
        writer.write(f"{index}\n")
    begin_s = time.monotonic()
    writer.finish(WAIT_S)
    assert time.monotonic() - begin_s < WAIT_S, "finish() waited although all text was written"
    assert os.read(read_end, 1 << 16).decode() == "".join(f"{one}\n" for one in range(1000))
    os.close(read_end)
    os.close(write_end)


def test_a_closed_stream_is_ignored() -> None:
    writer = OutputWriter(None, "L4/host0")
    writer.write(LINE)
    writer.finish(WAIT_S)
