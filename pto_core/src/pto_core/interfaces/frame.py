"""Frames and answers of Python transports. Each is one ``bytes`` object: a header, then data.

The headers are the structures of ``pto/abi/endpoint.h``: a ``pto_frame``, and a ``pto_answer``
without its pointer. Both ends of a connection run on machines with the same byte order.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum

from pto_core.errors import ProtocolError

_FRAME = struct.Struct("=32sQiIQIHH")
_ANSWER = struct.Struct("=QIHH")

FRAME_HEAD_BYTES = _FRAME.size


class FrameKind(IntEnum):
    """The kind of a frame (``PTO_FRAME_*``)."""

    TASK = 0
    CONTROL = 1


class AnswerKind(IntEnum):
    """The kind of an answer (``PTO_ANSWER_*``)."""

    COMPLETED = 0
    REPLY = 1


class Outcome(IntEnum):
    """The outcome of a task frame (``PTO_OUTCOME_*``)."""

    SUCCEEDED = 0
    FAILED = 1
    SKIPPED = 2


@dataclass(frozen=True)
class Frame:
    """A frame. The members have the meaning of the members of ``pto_frame``."""

    kind: FrameKind
    number: int
    data: bytes = b""
    callable: bytes = bytes(32)
    required_child: int = -1
    required_count: int = 0
    config: int = 0
    flags: int = 0

    def pack(self) -> bytes:
        """Return the header and the data as bytes."""
        head = _FRAME.pack(
            self.callable,
            self.required_count,
            self.required_child,
            self.config,
            self.number,
            len(self.data),
            self.kind,
            self.flags,
        )
        return head + self.data

    @classmethod
    def unpack(cls, packed: bytes) -> Frame:
        """Parse a frame; raises :class:`~pto_core.errors.ProtocolError` if it is invalid."""
        _check_length("frame", packed, _FRAME)
        digest, count, child, config, number, size, kind, flags = _FRAME.unpack_from(packed)
        _check_data("frame", packed, _FRAME, size)
        _check_member("frame", kind, FrameKind)
        data = packed[_FRAME.size :]
        return cls(FrameKind(kind), number, data, digest, child, count, config, flags)


@dataclass(frozen=True)
class Answer:
    """An answer. The members have the meaning of the members of ``pto_answer``."""

    kind: AnswerKind
    number: int
    outcome: Outcome = Outcome.SUCCEEDED
    data: bytes = b""

    def pack(self) -> bytes:
        """Return the header and the data as bytes."""
        return _ANSWER.pack(self.number, len(self.data), self.kind, self.outcome) + self.data

    @classmethod
    def unpack(cls, packed: bytes) -> Answer:
        """Parse an answer; raises :class:`~pto_core.errors.ProtocolError` if it is invalid."""
        _check_length("answer", packed, _ANSWER)
        number, size, kind, outcome = _ANSWER.unpack_from(packed)
        _check_data("answer", packed, _ANSWER, size)
        _check_member("answer", kind, AnswerKind)
        _check_member("answer", outcome, Outcome)
        return cls(AnswerKind(kind), number, Outcome(outcome), packed[_ANSWER.size :])


def _check_length(what: str, packed: bytes, head: struct.Struct) -> None:
    if len(packed) < head.size:
        raise ProtocolError(
            f"{len(packed)} bytes are not a complete {what}: its head alone has {head.size} bytes"
        )


def _check_data(what: str, packed: bytes, head: struct.Struct, size: int) -> None:
    if len(packed) != head.size + size:
        raise ProtocolError(
            f"the {what} declares {size} bytes of data, but has {len(packed) - head.size}"
        )


def _check_member(what: str, value: int, members: type[IntEnum]) -> None:
    if value not in {int(member) for member in members}:
        raise ProtocolError(f"the {what} has an invalid {members.__name__}: {value}")
