"""``pto/abi/endpoint.h`` as ctypes structures; names are those of the header without ``pto_``."""

from __future__ import annotations

import ctypes
from ctypes import (
    CFUNCTYPE,
    POINTER,
    Structure,
    c_char_p,
    c_int32,
    c_uint8,
    c_uint16,
    c_uint32,
    c_uint64,
    c_void_p,
)
from enum import IntFlag

CLOSED = -1
PROTOCOL = -2
PAGE = 4096


class TransportFlag(IntFlag):
    """``PTO_TRANSPORT_*``."""

    SAME_ADDRESSES = 1
    IN_ORDER = 2


class FrameHead(Structure):
    """``pto_frame``."""

    _fields_ = (
        ("callable", c_uint8 * 32),
        ("required_count", c_uint64),
        ("required_child", c_int32),
        ("config", c_uint32),
        ("number", c_uint64),
        ("bytes", c_uint32),
        ("kind", c_uint16),
        ("flags", c_uint16),
    )


class FrameView(Structure):
    """``pto_frame_view``."""

    _fields_ = (("frame", POINTER(FrameHead)), ("data", c_void_p))


class Answer(Structure):
    """``pto_answer``."""

    _fields_ = (
        ("number", c_uint64),
        ("data", c_void_p),
        ("bytes", c_uint32),
        ("kind", c_uint16),
        ("outcome", c_uint16),
    )


class Bell(Structure):
    """``pto_bell``."""

    _fields_ = (
        ("rung", c_uint32),
        ("sleepers", c_uint32),
        ("descriptor", c_uint32),
        ("reserved", c_uint32 * 13),
    )


class Connection(Structure):
    """``pto_connection``."""

    _fields_ = (
        ("memory", c_void_p),
        ("memory_bytes", c_uint64),
        ("parent_bell", POINTER(Bell)),
        ("child_bell", POINTER(Bell)),
        ("queue_frames", c_uint32),
        ("queue_bytes", c_uint32),
    )


class TransportApi(Structure):
    """``pto_transport_api``."""

    _fields_ = (
        ("abi_version", c_uint32),
        ("capabilities", c_uint32),
        ("name", c_char_p),
        ("memory_needed", CFUNCTYPE(c_uint64, POINTER(Connection))),
        ("open_parent", CFUNCTYPE(c_void_p, POINTER(Connection))),
        ("submit", CFUNCTYPE(c_int32, c_void_p, POINTER(FrameView), c_int32)),
        ("poll", CFUNCTYPE(c_int32, c_void_p, POINTER(Answer), c_int32)),
        ("parent_error", CFUNCTYPE(c_char_p, c_void_p)),
        ("close_parent", CFUNCTYPE(None, c_void_p)),
        ("open_child", CFUNCTYPE(c_void_p, POINTER(Connection))),
        ("receive", CFUNCTYPE(c_int32, c_void_p, POINTER(FrameView), c_int32)),
        ("take", CFUNCTYPE(None, c_void_p, c_int32)),
        ("answer", CFUNCTYPE(c_int32, c_void_p, POINTER(Answer))),
        ("child_error", CFUNCTYPE(c_char_p, c_void_p)),
        ("close_child", CFUNCTYPE(None, c_void_p)),
    )


def head_of(packed: bytes) -> FrameHead:
    """Return the head of a packed frame."""
    return FrameHead.from_buffer_copy(packed)


def bytes_at(address: int | None, size: int) -> bytes:
    """Copy the bytes at ``address``."""
    return ctypes.string_at(address, size) if address and size else b""
