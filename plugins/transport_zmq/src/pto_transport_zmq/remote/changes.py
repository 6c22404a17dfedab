"""The changed bytes of a piece of memory, as a message.

A task may write a part of an output, and another host may write the other bytes. So a message has
exactly the bytes that differ from the content before the task, even where a longer range would take
fewer bytes:

``W``
    all bytes of the piece, where all differ
``R``
    runs: u32 count, then u32 offset and u32 length of each, then their bytes
``B``
    a bit for each byte of the piece, the first bit of a byte first, then the changed bytes

A piece without a change has an empty message.
"""

from __future__ import annotations

import struct

import numpy as np
import numpy.typing as npt

from pto_core.errors import ProtocolError

_COUNT = struct.Struct("<I")
_RUN_BYTES = 8
_Bytes = npt.NDArray[np.uint8]


def changes(before: bytes | memoryview, after: memoryview) -> bytes:
    """Return the message for the bytes in which ``after`` differs from ``before``."""
    old, new = _array(before), _array(after)
    if np.array_equal(old, new):
        return b""
    changed = old != new
    if changed.all():
        return whole(after)
    edges = np.flatnonzero(np.diff(changed, prepend=False, append=False))
    starts, lengths = edges[0::2], edges[1::2] - edges[0::2]
    count = int(lengths.sum())
    runs_bytes = _COUNT.size + len(starts) * _RUN_BYTES + count
    bits_bytes = -(-len(new) // 8) + count
    if bits_bytes < runs_bytes:
        return b"B" + bytes(np.packbits(changed, bitorder="little")) + bytes(new[changed])
    table = np.stack([starts, lengths], axis=1).astype("<u4")
    return b"R" + _COUNT.pack(len(starts)) + bytes(table) + bytes(new[changed])


def whole(content: memoryview) -> bytes:
    """Return the message with all bytes of a piece; used for memory allocated for the task."""
    return b"W" + content.tobytes()


def apply_changes(message: bytes | memoryview, target: memoryview) -> None:
    """Write the changed bytes into a piece, and no others.

    Raises ProtocolError for an invalid message; then nothing was written.
    """
    view = memoryview(message)
    if not view:
        return
    form, content = bytes(view[:1]), _array(view[1:])
    into = _array(target)
    if form == b"W" and len(content) == len(into):
        into[:] = content
    elif form == b"B":
        _apply_bits(content, into)
    elif form == b"R":
        _apply_runs(content, into)
    else:
        raise _invalid(view, into)


def _apply_bits(content: _Bytes, into: _Bytes) -> None:
    nbytes = -(-len(into) // 8)
    changed = np.unpackbits(content[:nbytes], count=len(into), bitorder="little").view(bool)
    if len(content) < nbytes or int(changed.sum()) != len(content) - nbytes:
        raise _invalid(content, into)
    into[changed] = content[nbytes:]


def _apply_runs(content: _Bytes, into: _Bytes) -> None:
    if len(content) < _COUNT.size:
        raise _invalid(content, into)
    (count,) = _COUNT.unpack(content[: _COUNT.size].tobytes())
    first = _COUNT.size + count * _RUN_BYTES
    if first > len(content):
        raise _invalid(content, into)
    table = content[_COUNT.size : first].view("<u4").astype(np.int64).reshape(count, 2)
    ends = table.sum(axis=1)
    is_ordered = bool(np.all(table[1:, 0] >= ends[:-1]))
    if count == 0 or not is_ordered or ends[-1] > len(into):
        raise _invalid(content, into)
    if int(table[:, 1].sum()) != len(content) - first:
        raise _invalid(content, into)
    offset = first
    for start, length in table.tolist():
        into[start : start + length] = content[offset : offset + length]
        offset += length


def _array(memory: bytes | memoryview) -> _Bytes:
    return np.frombuffer(memory, np.uint8)


def _invalid(message: memoryview | _Bytes, into: _Bytes) -> ProtocolError:
    return ProtocolError(
        f"a message of {len(message)} bytes for the changes of a piece of {len(into)} bytes "
        "is invalid"
    )
