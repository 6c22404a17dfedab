"""A transport in Python that records the task frames of each child, and its plugin."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import packets
from fake_distributions import Site

from pto_core.interfaces import Connection
from pto_core.interfaces.frame import Frame, FrameKind

NAME = "recording"
TENSOR_BYTES = 40
PAD = slice(34, 40)  # the bytes after `child_memory` in a tensor

example: dict[str, Any] = {}
exec(packets.source(), example)
recorded: dict[str, list[Frame]] = {}
"""The task frames that were sent to each child, by the path of the child."""


class RecordingParent(example["PacketsEndpoint"]):  # type: ignore[misc]
    """The parent's end of the example transport, which also records the frames that it sends."""

    child = ""

    def submit(self, frames: Sequence[bytes]) -> int:
        taken = int(super().submit(frames))
        found = [Frame.unpack(frame) for frame in frames[:taken]]
        recorded.setdefault(self.child, []).extend(
            frame for frame in found if frame.kind is FrameKind.TASK
        )
        return taken


class RecordingTransport(example["PacketsTransport"]):  # type: ignore[misc]
    """The transport of the interface's example, with recording ends in the parent."""

    name = NAME

    def connect(self, connection: Connection) -> tuple[Any, Any]:
        parent, child = super().connect(connection)
        recording = RecordingParent(parent.packets)
        recording.child = connection.child
        return recording, child


plugin = RecordingTransport()


def install(site: Site) -> None:
    """Install the distribution of the plugin."""
    site.install("pto-transport-recording", {"pto.transports": f"{NAME} = {__name__}:plugin"})


def pads_of(frame: Frame) -> list[bytes]:
    """Return the six bytes after ``child_memory`` in each tensor of a task frame."""
    if not frame.data:
        return []  # a task without arguments
    (count,) = struct.unpack_from("=i", frame.data)
    tensors = [frame.data[8 + i * TENSOR_BYTES :][:TENSOR_BYTES] for i in range(count)]
    return [tensor[PAD] for tensor in tensors]
