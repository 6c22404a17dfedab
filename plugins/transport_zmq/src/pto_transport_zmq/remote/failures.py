"""The failure of a task or request, as bytes for another host."""

from __future__ import annotations

import pickle

import msgspec

from pto_core.errors import ProtocolError
from pto_core.hierarchy.failures import Failure, end_of, start_of
from pto_transport_zmq.remote.exception_table import load_known
from pto_transport_zmq.remote.values import (
    NAME_MAX,
    TEXT_MAX,
    ExceptionRecord,
    ExceptionValue,
    Name,
    Record,
    Text,
    decoder,
    encodable,
    encoded,
    from_exception,
    shortened,
    shortened_start,
    to_exception,
)

FAILURE_BYTES_MAX = 2**23
# These numbers limit a truncated failure: a character takes up to 4 bytes; the name and all heads
# take fewer than _OTHER_BYTES.
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

    The exception and its causes are rebuilt if their types are in the tables of
    :mod:`pto_transport_zmq.remote.exception_table`; the others become RemoteErrors.
    """
    return failure_from_record(_decode(content))


def failure_to_record(failure: Failure, most_bytes: int = FAILURE_BYTES_MAX) -> FailureRecord:
    """Return the record of a failure; the record has at most ``most_bytes``."""
    exception = None if failure.exception is None else to_exception(failure.exception)
    texts = failure.type_name, failure.message, failure.traceback
    return _limited(*texts, exception, most_bytes)


def packed_to_record(content: bytes, most_bytes: int = FAILURE_BYTES_MAX) -> FailureRecord:
    """Return the record of a failure that a child on this host packed (``Failure.pack``).

    Only exceptions of the tables are unpickled: no module of the user is imported here. Others
    become text. Raises ProtocolError.
    """
    try:
        type_name, message, text, links = load_known(content)
        chain = [_link_record(*link) for link in links or ()]
        if chain and chain[0].fields is None and chain[0].arguments is None:
            chain[0] = msgspec.structs.replace(chain[0], traceback=shortened_start(text))
        exception = ExceptionValue(chain) if chain else None
        return _limited(type_name, message, text, exception, most_bytes)
    except (TypeError, ValueError, pickle.UnpicklingError) as error:
        raise ProtocolError(f"a child sent an invalid failure: {error}") from None


def failure_from_record(record: FailureRecord) -> Failure:
    """Return the failure of a record; raise ProtocolError."""
    exception = None if record.exception is None else from_exception(record.exception)
    return Failure(record.type_name, record.message, record.traceback, exception)


def _link_record(type_name: str, message: str, content: bytes | None) -> ExceptionRecord:
    try:
        known = None if content is None else load_known(content)
    except pickle.UnpicklingError:
        known = None
    if isinstance(known, BaseException):
        return to_exception(known).chain[0]
    return ExceptionRecord(start_of(encodable(type_name), NAME_MAX), shortened(message))


def _limited(
    type_name: str, message: str, text: str, exception: ExceptionValue | None, most_bytes: int
) -> FailureRecord:
    name = start_of(encodable(type_name), NAME_MAX)
    whole = FailureRecord(name, shortened(message), shortened_start(text), exception)
    if len(encoded(whole)) <= most_bytes:
        return whole
    most = min(max(0, most_bytes - _OTHER_BYTES) // (2 * _CHARACTER_BYTES), TEXT_MAX)
    return FailureRecord(name, start_of(whole.message, most), end_of(whole.traceback, most))


_decode = decoder(FailureRecord, "failure", FAILURE_BYTES_MAX)
