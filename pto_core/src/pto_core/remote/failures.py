"""The failure of a task or request, as bytes for another host."""

from __future__ import annotations

from pto_core.hierarchy.failures import Failure, end_of, start_of
from pto_core.remote.values import (
    NAME_MAX,
    TEXT_MAX,
    ExceptionValue,
    Name,
    Record,
    Text,
    decoder,
    encodable,
    encoded,
    from_exception,
    to_exception,
)

FAILURE_BYTES_MAX = 2**23
# For cutting a failure: a character takes up to 4 bytes, the name and all heads take few bytes.
_CHARACTER_BYTES = 4
_OTHER_BYTES = 1000


class FailureRecord(Record, frozen=True):
    """A :class:`Failure`; ``exception`` is None if the failure was cut."""

    type_name: Name
    message: Text
    traceback: Text
    exception: ExceptionValue | None = None


def failure_to_bytes(failure: Failure, most_bytes: int = FAILURE_BYTES_MAX) -> bytes:
    """Return the bytes of a failure; to fit ``most_bytes``, cut texts and drop the exception."""
    return encoded(failure_to_record(failure, most_bytes))


def failure_from_bytes(content: bytes) -> Failure:
    """Return the failure of these bytes; raise ProtocolError.

    Its exception and their causes are rebuilt if their types are in the tables of
    :mod:`pto_core.remote.exception_table`; the others are RemoteErrors.
    """
    return failure_from_record(_decode(content))


def failure_to_record(failure: Failure, most_bytes: int = FAILURE_BYTES_MAX) -> FailureRecord:
    """Return the record of a failure, whose bytes are at most ``most_bytes``."""
    name = start_of(encodable(failure.type_name), NAME_MAX)
    message, text = encodable(failure.message), encodable(failure.traceback)
    exception = None if failure.exception is None else to_exception(failure.exception)
    whole = FailureRecord(name, start_of(message, TEXT_MAX), end_of(text, TEXT_MAX), exception)
    if len(encoded(whole)) <= most_bytes:
        return whole
    most = min(max(0, most_bytes - _OTHER_BYTES) // (2 * _CHARACTER_BYTES), TEXT_MAX)
    return FailureRecord(name, start_of(message, most), end_of(text, most))


def failure_from_record(record: FailureRecord) -> Failure:
    """Return the failure of a record; raise ProtocolError."""
    exception = None if record.exception is None else from_exception(record.exception)
    return Failure(record.type_name, record.message, record.traceback, exception)


_decode = decoder(FailureRecord, "failure", FAILURE_BYTES_MAX)
