"""docs/remote-protocol.md states the bytes, kinds and limits of the code."""

from __future__ import annotations

import re
import struct
from pathlib import Path

from pto_core.interfaces.frame import Outcome
from pto_transport_zmq.remote import (
    address_space,
    lease,
    memory,
    messages,
    requests,
    session,
    wire,
)

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "remote-protocol.md").read_text()
SIZES = {"u8": 1, "u16": 2, "u32": 4, "u64": 8, "4 bytes": 4, "16 bytes": 16, "32 bytes": 32}
MIB = 1 << 20


def section(title: str) -> str:
    return PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]


def rows(text: str) -> list[list[str]]:
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in lines[2:]]


def offsets(table: list[list[str]]) -> list[int]:
    """Return the offsets that follow from the types in a table, and the size of the whole."""
    found = [0]
    for row in table:
        found.append(found[-1] + SIZES[row[1]])
    return found


def test_the_head():
    table = rows(section("Head"))
    assert [row[2] for row in table] == list(wire.Head._fields)
    assert [*(int(row[0]) for row in table), wire.HEAD_BYTES] == offsets(table)
    assert f"{wire.HEAD_BYTES} bytes" in section("Head")
    assert f"at most {wire.MAX_PARTS} parts" in section("Head")
    assert f"version of this protocol: {wire.VERSION} " in section("Head")
    packed = wire.pack_head(*(row[2].encode() if row[1].endswith("bytes") else 1 for row in table))
    for row in table:
        size = SIZES[row[1]]
        value = packed[int(row[0]) :][:size]
        expected = row[2].encode()[:size].ljust(size, b"\0")
        assert value in {expected, (1).to_bytes(size, "little")}


def test_the_kinds():
    table = rows(section("Kinds"))
    assert [(int(row[0]), row[1]) for row in table[:-1]] == [(k.value, k.name) for k in wire.Kind]
    assert table[-1][0] == f"{wire.FIRST_FREE_KIND} to {wire.MAX_KIND}"


def test_the_identity():
    table = rows(section("Greeting"))
    assert [*(int(row[0]) for row in table), session.GREETING_BYTES] == offsets(table)
    assert f"The identity has {session.GREETING_BYTES} bytes" in section("Greeting")


def test_tasks_and_their_ends():
    tasks, ends = (rows(part) for part in section("Tasks").split("The answers are"))
    task = messages.pack_task(messages.TaskFrame(1, 2, 3, 4, 5, bytes(range(32)), b""))
    assert [*(int(row[0]) for row in tasks), len(task)] == offsets(tasks)
    assert task == struct.pack("<QQII32sHHI", 2, 3, 4, 0, bytes(range(32)), 5, 0, 0)
    (body,) = messages.pack_ended([messages.EndedFrame(7, Outcome.SUCCEEDED, frames=6)])
    assert [*(int(row[0]) for row in ends), len(body) - 4] == offsets(ends)
    assert body == struct.pack("<IQIHHI", 1, 7, 6, 0, 0, 0)
    for kind in (messages.MessageKind.TASKS, messages.MessageKind.ENDED):
        assert f"kind {kind}, `{kind.name}`" in section("Tasks")
    assert f"has 1 to {messages.FRAMES_MAX} tasks" in section("Tasks")


def test_remote_buffers():
    parts = re.split("The content travels|### Copies", section("Remote buffers"))
    requests_table, content, copies = parts
    kinds = {row[1]: int(row[0]) for row in rows(copies)}
    assert kinds == {name: messages.MessageKind[name] for name in ("BUFFER", "SENT", "RECEIVED")}
    found = {row[0]: row[1].split("`, `") for row in rows(requests_table)}
    assert found == {
        str(kind.__struct_config__.tag): list(kind.__struct_fields__)
        for kind in requests.BUFFER_REQUESTS
    }
    table = rows(content)
    push = memory.Push(address_space.Range(5, 8), b"abc")
    head = messages.pack_content(7, push)[0]
    assert [*(int(row[0]) for row in table), len(head)] == offsets(table)
    assert head == bytes([7, *[0] * 7, 5, *[0] * 7, 3, 0, 0, 0])
    assert f"kind {messages.MessageKind.BUFFER}, `BUFFER`" in content


def test_the_limits():
    def number(cell: str) -> int:
        units = {"MiB": MIB, "KiB": 1024, "": 1}
        return sum(int(n) * units[unit] for n, unit in re.findall(r"(\d+) ?(MiB|KiB|)", cell))

    columns = list(zip(*(row[1:] for row in rows(section("Limits"))), strict=True))
    assert [tuple(map(number, column)) for column in columns] == [
        (limits.body_bytes, limits.messages, limits.bytes) for limits in wire.LIMITS
    ]


def test_the_times():
    text = " ".join(section("Lease").split())
    times = lease.Lease()
    assert f"The default is {times.duration_ns // lease.SECOND} s" in text
    assert f"`gateway` is {times.gateway_ns / lease.SECOND} s" in text
    assert f"`relay` is {times.relay_ns / lease.SECOND:.3f} s" in text
    assert f"`d` is {100 // lease.DRIFT_PARTS} %" in text
    assert f"`ending` is {lease.ENDING_NS / lease.SECOND} s" in text
