"""The printed text of a session is assembled into whole lines."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import islice

import pytest

from pto_transport_zmq.remote.gateway import LINE_BYTES_MAX, OutputLines
from pto_transport_zmq.remote.relay import prefixed


@pytest.fixture
def pipe() -> Iterator[tuple[OutputLines, int]]:
    """Return the reader of a pipe, and the end for writing."""
    read_end, write_end = os.pipe()
    yield OutputLines(read_end), write_end
    os.close(read_end)
    os.close(write_end)


def test_lines_are_returned_when_they_are_whole(pipe: tuple[OutputLines, int]) -> None:
    lines, end = pipe
    assert lines.read() == b""
    text = "first\r50 %\r100 %\nsécond\n\nthird".encode()
    found = b""
    for index in range(len(text)):
        os.write(end, text[index : index + 1])
        part = lines.read()
        assert part.endswith(b"\n") or not part
        found += part
    assert found == text.removesuffix(b"third")
    os.write(end, b" and\nlast")
    assert list(lines.read_all()) == [b"third and\n", b"last\n"]
    assert list(lines.read_all()) == []


def test_a_line_without_end_is_cut_at_the_limit(pipe: tuple[OutputLines, int]) -> None:
    lines, end = pipe
    os.write(end, b"a" * (LINE_BYTES_MAX // 2))
    assert lines.read() == b""
    os.write(end, b"a" * (LINE_BYTES_MAX // 2))
    assert lines.read() == b"a" * LINE_BYTES_MAX + b"\n"
    os.write(end, b"b\n")
    assert lines.read() == b"b\n"


def test_all_text_is_limited_for_a_process_that_prints_without_a_pause() -> None:
    with open("/dev/zero", "rb") as endless:
        parts = list(islice(OutputLines(endless.fileno()).read_all(), 100))
    assert 0 < len(parts) < 100


def test_each_line_has_the_path_of_its_session() -> None:
    text = prefixed("L4/host0", b"a\x0bb\rc\n\nd\n" + b"\xff\n")
    assert text == "[L4/host0] a\x0bb\rc\n[L4/host0] \n[L4/host0] d\n[L4/host0] \ufffd\n"
