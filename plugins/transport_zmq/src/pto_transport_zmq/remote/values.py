"""The typed form of values, exceptions and failures between hosts.

A message is MessagePack whose types and lengths msgspec checks. Decoding a message creates only
plain values and exceptions of a fixed table. Whatever the bytes are, decoding imports nothing,
calls nothing else, and raises only ProtocolError.
"""

from __future__ import annotations

import builtins
import io
import itertools
import numbers
import os
import pickle
import traceback
from collections.abc import Callable, Collection, Mapping
from pathlib import PurePath
from typing import Annotated, Any, TypeVar

import msgspec

from pto_core import errors
from pto_core.errors import PoisonedTask, ProtocolError, PtoError, RemoteError, UsageError
from pto_core.worker.failures import Failure, end_of, message_of, start_of
from pto_core.worker.serialisation import NotImportableError

# ---- the exceptions that are rebuilt from their name and plain values on another host ----
#
# All others arrive as a RemoteError. KeyboardInterrupt, SystemExit and other exceptions that are
# not an Exception are not in the table: they would end the program that receives them.

_OF_THE_TREE = (kind for kind in vars(errors).values() if isinstance(kind, type))

OWN_ERRORS: Mapping[str, type[PtoError]] = {
    **{kind.__name__: kind for kind in _OF_THE_TREE if issubclass(kind, PtoError)},
    NotImportableError.__name__: NotImportableError,
}
"""The errors of pto by name; they are made from a message and fields."""

BUILTINS: Mapping[str, type[Exception]] = {
    kind.__name__: kind
    for kind in vars(builtins).values()
    if isinstance(kind, type)
    and issubclass(kind, Exception)
    and not issubclass(kind, BaseExceptionGroup)
    and kind.__module__ == builtins.__name__
}
"""The built-in exceptions by name; they are made from their arguments."""


def load_known(content: bytes) -> Any:
    """Unpickle plain values and exceptions of the tables; raise UnpicklingError for any other."""
    try:
        return _KnownUnpickler(io.BytesIO(content)).load()
    except Exception as error:  # noqa: BLE001 - invalid bytes raise errors of many types
        raise pickle.UnpicklingError(f"{type(error).__name__}: {error}") from None


class _KnownUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _PICKLED_NAMES:
            raise pickle.UnpicklingError(f"{module}.{name} is not in the tables")
        return super().find_class(module, name)


_REBUILD = PtoError("").__reduce__()[0]
_PICKLED_NAMES = {
    (one.__module__, one.__name__)
    for one in (_REBUILD, PoisonedTask, *OWN_ERRORS.values(), *BUILTINS.values())
}


TEXT_MAX = 2**18
BYTES_MAX = 2**18
ITEMS_MAX = 2**10
DEPTH_MAX = 16
CAUSES_MAX = 20
NAME_MAX = 200
_REPR_MAX = 200
_INTEGERS = range(-(2**63), 2**64)

Text = Annotated[str, msgspec.Meta(max_length=TEXT_MAX)]
Name = Annotated[str, msgspec.Meta(max_length=NAME_MAX)]
Natural = Annotated[int, msgspec.Meta(ge=0)]


class Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The base of all records of a message."""


class BytesValue(Record, frozen=True, tag="bytes"):
    """A byte string."""

    content: Annotated[bytes, msgspec.Meta(max_length=BYTES_MAX)]


class ListValue(Record, frozen=True, tag="list"):
    """A list."""

    items: Annotated[list[Value], msgspec.Meta(max_length=ITEMS_MAX)]


class TupleValue(Record, frozen=True, tag="tuple"):
    """A tuple."""

    items: Annotated[list[Value], msgspec.Meta(max_length=ITEMS_MAX)]


class DictValue(Record, frozen=True, tag="dict"):
    """A dict whose keys are texts."""

    items: Annotated[dict[Text, Value], msgspec.Meta(max_length=ITEMS_MAX)]


class PoisonedValue(Record, frozen=True, tag="poisoned"):
    """A :class:`pto_core.errors.PoisonedTask`."""

    task: int
    callable: Text
    file: Text | None
    line: int | None
    root: int | None


class ExceptionValue(Record, frozen=True, tag="exception"):
    """An exception with its chain of causes, the exception itself first."""

    chain: Annotated[list[ExceptionRecord], msgspec.Meta(min_length=1, max_length=CAUSES_MAX)]


class ExceptionRecord(Record, frozen=True):
    """One exception of a chain.

    ``arguments``: for a built-in exception, otherwise None. ``fields``: for an error of pto,
    otherwise None. If both are None, the receiver makes a RemoteError, as it does for an unknown
    type.
    """

    type_name: Name
    message: Text
    traceback: Text = ""
    arguments: Annotated[list[Value], msgspec.Meta(max_length=ITEMS_MAX)] | None = None
    fields: Annotated[dict[Name, Value], msgspec.Meta(max_length=ITEMS_MAX)] | None = None
    notes: Annotated[list[Text], msgspec.Meta(max_length=ITEMS_MAX)] = []


Value = (
    None
    | bool
    | int
    | float
    | Text
    | BytesValue
    | ListValue
    | TupleValue
    | DictValue
    | PoisonedValue
    | ExceptionValue
)

Sized = TypeVar("Sized", bound=Collection[Any])


def encoded(message: Record) -> bytes:
    """Return the bytes of a message."""
    return msgspec.msgpack.encode(message)


def decoder(kind: Any, what: str, most_bytes: int) -> Callable[[bytes], Any]:
    """Return the function that decodes messages of a type, and raises only ProtocolError.

    ``what`` names the message in errors.
    """
    inner = msgspec.msgpack.Decoder(kind)

    def decode(content: bytes) -> Any:
        if len(content) > most_bytes:
            raise ProtocolError(
                f"an encoded {what} has {len(content)} bytes; the limit is {most_bytes}"
            )
        try:
            return inner.decode(content)
        except (ValueError, OverflowError, RecursionError) as error:
            raise ProtocolError(f"an encoded {what} is invalid: {error}") from None

    return decode


# ---- values ----


def to_value(value: object) -> Value:
    """Return the form of a plain value; raise UsageError if it is not plain or too long."""
    return _to_value(value, 0)


def from_value(value: Value) -> Any:
    """Return the plain value; raise ProtocolError if it is nested too deeply."""
    return _from_value(value, 0)


def encodable(text: str) -> str:
    """Return a text that UTF-8 can encode: each lone surrogate becomes an escape sequence."""
    return str.encode(text, errors="backslashreplace").decode()


def shortened(text: str) -> str:
    """Return the start of a text, short enough to send, and in a form that UTF-8 can encode."""
    return start_of(encodable(text), TEXT_MAX)


def shortened_start(text: str) -> str:
    """Return the end of a text, short enough to send, and in a form that UTF-8 can encode."""
    return end_of(encodable(text), TEXT_MAX)


def _to_value(value: object, depth: int) -> Value:
    if depth > DEPTH_MAX:
        raise _refused(value, f"is nested more than {DEPTH_MAX} levels deep")
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, numbers.Integral):
        number = int(value)
        if number not in _INTEGERS:
            raise _refused(value, "does not fit 64 bits")
        return number
    if isinstance(value, float):
        return float.__float__(value)
    if isinstance(value, str):
        return _limited(encodable(value), TEXT_MAX, value)
    if isinstance(value, bytes):
        return BytesValue(_limited(bytes(value), BYTES_MAX, value))
    return _container_to_value(value, depth)


def _container_to_value(value: object, depth: int) -> Value:
    if isinstance(value, PoisonedTask):
        name, file = shortened(value.callable), value.file and shortened(value.file)
        return PoisonedValue(value.task, name, file, value.line, value.root)
    if isinstance(value, PtoError):
        return ExceptionValue(_chain(value, depth + 1))
    if isinstance(value, list | tuple):
        items = [_to_value(one, depth + 1) for one in _limited(value, ITEMS_MAX, value)]
        return TupleValue(items) if isinstance(value, tuple) else ListValue(items)
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return DictValue(
            {
                _limited(encodable(key), TEXT_MAX, value): _to_value(one, depth + 1)
                for key, one in _limited(value, ITEMS_MAX, value).items()
            }
        )
    raise _refused(value, "is not a plain value")


def _from_value(value: Value, depth: int) -> Any:
    if depth > DEPTH_MAX:
        raise ProtocolError(
            f"a value from another host is nested more than {DEPTH_MAX} levels deep"
        )
    if isinstance(value, ListValue):
        return [_from_value(one, depth + 1) for one in value.items]
    if isinstance(value, TupleValue):
        return tuple(_from_value(one, depth + 1) for one in value.items)
    if isinstance(value, DictValue):
        return {key: _from_value(one, depth + 1) for key, one in value.items.items()}
    if isinstance(value, BytesValue):
        return value.content
    if isinstance(value, PoisonedValue):
        return PoisonedTask(value.task, value.callable, value.file, value.line, value.root)
    if isinstance(value, ExceptionValue):
        return _raised(value.chain, depth + 1)
    return value


def _limited(value: Sized, most: int, original: object) -> Sized:
    if len(value) > most:
        raise _refused(original, f"has {len(value)} elements, more than {most},")
    return value


def _refused(value: object, reason: str) -> UsageError:
    return UsageError(
        f"{_described(value)} {reason} and cannot be sent to another host; send None, numbers, "
        "texts, bytes, lists, tuples or dicts with texts as keys"
    )


def _described(value: object) -> str:
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - its __repr__ may raise anything
        text = f"a {type(value).__qualname__}"
    return start_of(encodable(text), _REPR_MAX)


# ---- exceptions ----


def to_exception(exception: BaseException) -> ExceptionValue:
    """Return the form of an exception and its causes."""
    return ExceptionValue(_chain(exception, 0))


def from_exception(value: ExceptionValue) -> BaseException:
    """Return the exception with its causes.

    Raises ProtocolError if the arguments or fields are not those of the type.
    """
    return _raised(value.chain, 0)


def _chain(exception: BaseException, depth: int) -> list[ExceptionRecord]:
    found: list[ExceptionRecord] = []
    one: BaseException | None = exception
    while one is not None and len(found) < CAUSES_MAX:
        found.append(_record(one, depth))
        one = one.__cause__
    return found


def _record(exception: BaseException, depth: int) -> ExceptionRecord:
    kind = type(exception)
    name = start_of(encodable(kind.__qualname__), NAME_MAX)
    message = shortened(message_of(exception))
    notes = _notes(exception)
    # The error of a task may be of a subclass that is also a class of a program; it has this name.
    if isinstance(exception, PtoError) and isinstance(exception, OWN_ERRORS.get(name, ())):
        fields = {one: _field(getattr(exception, one, None), depth + 1) for one in exception.fields}
        return ExceptionRecord(name, message, fields=fields, notes=notes)
    if BUILTINS.get(name) is kind:
        try:
            arguments = [_to_value(_cut(one), depth + 1) for one in _arguments(exception)]
            made = ExceptionRecord(name, message, arguments=arguments, notes=notes)
            _rebuilt(made, depth)
        except (UsageError, ProtocolError):
            pass  # send it without arguments: one is not plain, or cannot be rebuilt
        else:
            return made
    lines = traceback.format_exception(exception, chain=False)
    text = shortened_start("".join(lines)) if exception.__traceback__ else ""
    return ExceptionRecord(name, message, text, notes=notes)


def _raised(chain: list[ExceptionRecord], depth: int) -> BaseException:
    made = [_rebuilt(record, depth) for record in chain]
    for one, cause in itertools.pairwise(made):
        one.__cause__ = cause
    return made[0]


def _rebuilt(record: ExceptionRecord, depth: int) -> BaseException:
    made = _of_tables(record, depth)
    if made is None:
        what = f"{record.type_name}: {record.message}" if record.message else record.type_name
        made = RemoteError(
            what, type_name=record.type_name, remote_traceback=record.traceback or None
        )
    for note in record.notes:
        made.add_note(note)
    return made


def _of_tables(record: ExceptionRecord, depth: int) -> BaseException | None:
    """Return the exception of a type that both hosts know; None for any other type."""
    own, builtin = OWN_ERRORS.get(record.type_name), BUILTINS.get(record.type_name)
    try:
        if own is not None and record.fields is not None:
            fields = {name: _from_value(one, depth + 1) for name, one in record.fields.items()}
            return own(record.message, **fields)
        if builtin is not None and record.arguments is not None:
            return builtin(*(_from_value(one, depth + 1) for one in record.arguments))
    except (TypeError, ValueError, OverflowError) as error:
        raise ProtocolError(f"a {record.type_name} from another host is invalid: {error}") from None
    return None


def _field(value: object, depth: int) -> Value:
    """Return a field of an error. Long values are cut; values that are not plain become a repr."""
    try:
        return _to_value(_cut(value), depth)
    except Exception:  # noqa: BLE001 - methods of a user's class may raise anything
        return _described(value)


def _cut(value: object) -> object:
    if isinstance(value, str):
        return shortened(value)
    is_long = isinstance(value, list | tuple) and len(value) > ITEMS_MAX
    return value[:ITEMS_MAX] if is_long else value  # type: ignore[index]


def _arguments(exception: BaseException) -> tuple[object, ...]:
    """Return the arguments of the constructor: the ``args`` of an OSError lack the files."""
    if not isinstance(exception, OSError) or not isinstance(
        exception.filename, str | bytes | PurePath
    ):
        return exception.args
    files = (exception.filename, None, exception.filename2)
    return *exception.args, *(os.fspath(f) if isinstance(f, PurePath) else f for f in files)


def _notes(exception: BaseException) -> list[str]:
    notes = getattr(exception, "__notes__", None)
    texts = notes if isinstance(notes, list) else []
    return [shortened(note) for note in texts[:ITEMS_MAX] if isinstance(note, str)]


# ---- failures of tasks and requests ----

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
    :mod:`pto_transport_zmq.remote.values`; the others become RemoteErrors.
    """
    return failure_from_record(_decode(content))


def failure_to_record(failure: Failure, most_bytes: int = FAILURE_BYTES_MAX) -> FailureRecord:
    """Return the record of a failure; the record has at most ``most_bytes``."""
    exception = None if failure.exception is None else to_exception(failure.exception)
    texts = failure.type_name, failure.message, failure.traceback
    return _limited_record(*texts, exception, most_bytes)


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
        return _limited_record(type_name, message, text, exception, most_bytes)
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


def _limited_record(
    type_name: str, message: str, text: str, exception: ExceptionValue | None, most_bytes: int
) -> FailureRecord:
    name = start_of(encodable(type_name), NAME_MAX)
    whole = FailureRecord(name, shortened(message), shortened_start(text), exception)
    if len(encoded(whole)) <= most_bytes:
        return whole
    most = min(max(0, most_bytes - _OTHER_BYTES) // (2 * _CHARACTER_BYTES), TEXT_MAX)
    return FailureRecord(name, start_of(whole.message, most), end_of(whole.traceback, most))


_decode = decoder(FailureRecord, "failure", FAILURE_BYTES_MAX)
