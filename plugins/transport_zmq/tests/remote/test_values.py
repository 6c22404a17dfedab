"""Values and exceptions arrive on another host unchanged; invalid bytes are refused."""

from __future__ import annotations

import builtins
import errno
import math
import os
import pickle
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings, strategies as st

from pto_core import errors
from pto_core.errors import (
    ChildDiedError,
    PoisonedTask,
    ProtocolError,
    PtoError,
    RemoteError,
    TaskFailedError,
    UsageError,
)
from pto_core.worker.failures import Failure
from pto_transport_zmq.remote.values import (
    BUILTINS,
    BYTES_MAX,
    DEPTH_MAX,
    ITEMS_MAX,
    OWN_ERRORS,
    TEXT_MAX,
    ExceptionValue,
    Value,
    decoder,
    failure_from_bytes,
    failure_to_bytes,
    from_exception,
    from_value,
    to_exception,
    to_value,
)

decode_value = decoder(Value, "value", 2**24)
decode_exception = decoder(ExceptionValue, "exception", 2**24)
poisoned_tasks = st.builds(
    PoisonedTask,
    st.integers(0, 2**40),
    st.text(max_size=9),
    st.none() | st.text(max_size=9),
    st.none() | st.integers(0, 9999),
    st.none() | st.integers(0, 2**40),
)
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
    | poisoned_tasks
)
plain_values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(st.text(), inner, max_size=4)
    ),
    max_leaves=12,
)


def sent(value: object) -> Any:
    return from_value(decode_value(msgspec.msgpack.encode(to_value(value))))


def arrived(exception: BaseException) -> BaseException:
    content = msgspec.msgpack.encode(to_exception(exception))
    return from_exception(decode_exception(content))


def is_same(one: Any, other: Any) -> bool:
    """Compare values and their types, because True equals 1, and a PoisonedTask equals a tuple."""
    if type(one) is not type(other):
        return False
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(is_same, one, other))
    if isinstance(one, dict):
        return list(one) == list(other) and all(is_same(one[key], other[key]) for key in one)
    return bool(one == other)


@given(plain_values)
def test_a_plain_value_arrives_with_its_type(value: object) -> None:
    assert is_same(sent(value), value)


def test_a_nan_arrives() -> None:
    assert math.isnan(sent(math.nan))


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (object(), "is not a plain value"),
        ({1: 2}, "is not a plain value"),
        (len, "is not a plain value"),
        (KeyError, "is not a plain value"),
        ({1, 2}, "is not a plain value"),
        (1j, "is not a plain value"),
        (2**64, "does not fit 64 bits"),
        (-(2**63) - 1, "does not fit 64 bits"),
        ("x" * (TEXT_MAX + 1), f"has {TEXT_MAX + 1} elements"),
        (b"x" * (BYTES_MAX + 1), f"has {BYTES_MAX + 1} elements"),
        ([0] * (ITEMS_MAX + 1), f"has {ITEMS_MAX + 1} elements"),
        ({str(i): 0 for i in range(ITEMS_MAX + 1)}, f"has {ITEMS_MAX + 1} elements"),
    ],
)
def test_other_values_are_refused_with_the_reason(value: object, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        to_value(value)


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def test_the_depth_has_a_limit_on_both_sides() -> None:
    assert sent(nested(DEPTH_MAX)) == nested(DEPTH_MAX)
    with pytest.raises(UsageError, match="nested"):
        to_value(nested(DEPTH_MAX + 1))
    for depth in (DEPTH_MAX + 1, 100_000):
        tree: Any = b"\x01"
        tree = b"\x82\xa4type\xa4list\xa5items\x91" * depth + tree
        with pytest.raises(ProtocolError):
            from_value(decode_value(tree))


@pytest.mark.parametrize(
    ("message", "field"),
    [
        ({"type": "list", "items": [1, {"type": "bytes", "content": 3}]}, r"\$.items\[1\].content"),
        ({"type": "tuple", "items": [0] * (ITEMS_MAX + 1)}, r"\$.items"),
        ({"type": "bytes", "content": b"x" * (BYTES_MAX + 1)}, r"\$.content"),
        ({"type": "dict", "items": {"a": "x" * (TEXT_MAX + 1)}}, r"\$.items\[...\]"),
        ({"type": "poisoned", "task": "1"}, r"\$.task"),
        ({"type": "list"}, "`items`"),
        ({"type": "list", "items": [], "more": 1}, "`more`"),
        ({"type": "os.system", "items": []}, r"\$.type"),
        ([1, 2], "array"),
    ],
)
def test_an_invalid_message_is_refused_by_its_field(message: object, field: str) -> None:
    with pytest.raises(ProtocolError, match=field):
        decode_value(msgspec.msgpack.encode(message))


def test_a_message_over_its_limit_is_not_read() -> None:
    with pytest.raises(ProtocolError, match="has 11 bytes; the limit is 10"):
        decoder(Value, "value", 10)(b"\xc0" * 11)


# ---- exceptions ----


@pytest.mark.parametrize("kind", OWN_ERRORS.values(), ids=lambda kind: kind.__name__)
@settings(max_examples=5)
@given(values=st.lists(plain_values, max_size=14), message=st.text(), notes=st.lists(st.text()))
def test_every_error_of_pto_arrives_with_its_fields(
    kind: type[PtoError], values: list[Any], message: str, notes: list[str]
) -> None:
    error = kind(message, **dict(zip(kind.fields, values, strict=False)))
    for note in notes:
        error.add_note(note)
    again = arrived(error)
    assert type(again) is kind
    assert (again.message, getattr(again, "__notes__", [])) == (message, notes)
    for name in kind.fields:
        assert is_same(getattr(again, name), getattr(error, name))


def test_every_class_of_the_tree_is_in_the_table() -> None:
    of_tree = {name for name in vars(errors) if name.endswith("Error")}
    assert of_tree | {"NotImportableError"} == set(OWN_ERRORS)


ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "UnicodeDecodeError": ("utf-8", b"\xff", 0, 1, "invalid start byte"),
    "UnicodeEncodeError": ("ascii", "\xe9", 0, 1, "ordinal not in range"),
    "UnicodeTranslateError": ("\xe9", 0, 1, "no such character"),
    **dict.fromkeys(
        ("SyntaxError", "IndentationError", "TabError"), ("bad", ("graph.py", 3, 7, "x = = 1"))
    ),
}


@pytest.mark.parametrize("kind", BUILTINS.values(), ids=lambda kind: kind.__name__)
def test_every_builtin_exception_arrives_with_its_arguments(kind: type[Exception]) -> None:
    error = kind(*ARGUMENTS.get(kind.__name__, ("what happened", 3)))
    error.add_note("a note")
    again = arrived(error)
    assert type(again) is type(error)
    assert (str(again), again.args, again.__notes__) == (str(error), error.args, ["a note"])


@given(st.sampled_from(list(BUILTINS.values())), st.lists(plain_values, max_size=5))
def test_a_builtin_exception_arrives_with_any_plain_arguments(
    kind: type[Exception], arguments: list[Any]
) -> None:
    try:
        error = kind(*arguments)
    except (TypeError, ValueError, OverflowError):
        return
    again = arrived(error)
    assert type(again) is type(error)
    assert is_same(again.args, error.args)


def test_the_table_has_common_exceptions_and_none_that_ends_a_program() -> None:
    assert {"ValueError", "KeyError", "OSError", "StopIteration", "UserWarning"} <= set(BUILTINS)
    assert not {"KeyboardInterrupt", "SystemExit", "GeneratorExit", "BaseException"} & set(BUILTINS)
    assert all(getattr(builtins, name) is kind for name, kind in BUILTINS.items())


@pytest.mark.parametrize("path", ["/no/such/file", b"/no/such/file", Path("/no/such/file")])
def test_an_error_of_the_system_keeps_number_and_file(path: Any) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        os.stat(path)
    again = arrived(caught.value)
    assert type(again) is FileNotFoundError
    assert (again.errno, os.fsencode(again.filename)) == (errno.ENOENT, b"/no/such/file")
    assert str(again) == str(caught.value).replace("PosixPath(", "").replace(")", "")


def test_an_error_of_the_system_keeps_both_files() -> None:
    with pytest.raises(OSError, match="No such file") as caught:
        os.rename("/no/one", "/no/two")
    again = arrived(caught.value)
    assert isinstance(again, OSError)
    assert (again.filename, again.filename2) == ("/no/one", "/no/two")


class SolverError(ValueError):
    pass


class MyUsageError(UsageError):
    pass


@pytest.mark.parametrize(
    "error",
    [
        SolverError("no solution"),
        MyUsageError("no solution"),
        KeyboardInterrupt("no solution"),
        SystemExit("no solution"),
        ValueError(object()),
        socket.gaierror(-2, "no solution"),
        ExceptionGroup("no solution", [ValueError("one")]),
    ],
    ids=lambda error: type(error).__name__,
)
def test_any_other_exception_arrives_as_a_remote_error(error: BaseException) -> None:
    try:
        raise error
    except BaseException as caught:  # noqa: BLE001 - the test accepts every exception
        again = arrived(caught)
    assert type(again) is RemoteError
    assert again.type_name == type(error).__qualname__
    assert str(again) == f"{type(error).__qualname__}: {error}"
    assert "raise error" in again.remote_traceback


def test_a_type_of_the_same_name_as_a_builtin_one_is_not_that_type() -> None:
    impostor = type("ValueError", (Exception,), {})
    assert type(arrived(impostor("x"))) is RemoteError


def test_causes_arrive_in_order() -> None:
    error, cause = TaskFailedError("task 3", task=3), SolverError("no solution")
    error.__cause__, cause.__cause__ = cause, KeyError("x")
    again = arrived(error)
    assert again.__cause__ is not None
    assert [type(one) for one in (again, again.__cause__, again.__cause__.__cause__)] == [
        *(TaskFailedError, RemoteError, KeyError)
    ]


def test_a_cycle_of_causes_arrives_cut() -> None:
    error = ValueError("x")
    error.__cause__ = error
    assert type(arrived(error)) is ValueError


def test_errors_in_fields_arrive_as_errors() -> None:
    died = ChildDiedError("it died", child=1, signal=9)
    died.__cause__ = OSError(errno.EPIPE, "broken pipe")
    poisoned = (PoisonedTask(2, "add", "graph.py", 7, 1),)
    again = arrived(TaskFailedError("task 1", failures=(died,), poisoned=poisoned))
    assert isinstance(again, TaskFailedError)
    assert again.poisoned == poisoned
    assert isinstance(again.poisoned[0], PoisonedTask)
    assert (type(again.failures[0]), again.failures[0].signal) == (ChildDiedError, 9)
    assert type(again.failures[0].__cause__) is BrokenPipeError


def test_a_field_that_is_not_plain_arrives_as_text_and_a_long_one_is_cut() -> None:
    class Rude:
        def __repr__(self) -> str:
            raise RuntimeError

    again = arrived(UsageError("x" * (TEXT_MAX + 9), name=len, value=Rude(), expected=[0] * 9999))
    assert isinstance(again, UsageError)
    assert again.message.endswith("x[...]")
    assert len(again.message) == TEXT_MAX
    assert again.name == "<built-in function len>"
    assert "Rude" in again.value
    assert again.expected == [0] * ITEMS_MAX


def test_texts_that_are_not_unicode_arrive_escaped() -> None:
    again = arrived(UsageError("file \udcff", value="\udcff"))
    assert isinstance(again, UsageError)
    assert (again.message, again.value) == ("file \\udcff", "\\udcff")


# ---- hostile content ----


def record(**fields: Any) -> bytes:
    whole = {"type_name": "ValueError", "message": "x", **fields}
    return msgspec.msgpack.encode({"type": "exception", "chain": [whole]})


@pytest.mark.parametrize(
    "fields",
    [
        {"type_name": "os.system", "arguments": ["touch file"]},
        {"type_name": "eval", "arguments": ["1"]},
        {"type_name": "KeyboardInterrupt", "arguments": []},
        {"type_name": "SystemExit", "arguments": [3]},
        {"type_name": "PtoError.__subclasses__", "fields": {}},
        {"type_name": "SolverError", "fields": {"name": "x"}, "arguments": [1]},
        {"type_name": "ValueError", "fields": {"name": "x"}},
        {"type_name": "UsageError", "arguments": ["x"]},
    ],
    ids=lambda fields: fields["type_name"],
)
def test_a_name_outside_the_tables_arrives_as_text(fields: dict[str, Any]) -> None:
    again = from_exception(decode_exception(record(**fields)))
    assert type(again) is RemoteError
    assert str(again) == f"{fields['type_name']}: x"


@pytest.mark.parametrize(
    "fields",
    [
        {"type_name": "UnicodeDecodeError", "arguments": [1, 2]},
        {"type_name": "UsageError", "fields": {"no_such_field": 1}},
        {"type_name": "UsageError", "fields": {"__class__": 1}},
        {"type_name": "ValueError", "arguments": 1},
        {"type_name": "x" * 201},
        {"notes": [1]},
        {"notes": ["x"] * (ITEMS_MAX + 1)},
        {"arguments": [0] * (ITEMS_MAX + 1)},
        {"more": 1},
    ],
)
def test_an_exception_with_wrong_content_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ProtocolError):
        from_exception(decode_exception(record(**fields)))


class Bomb:
    def __reduce__(self) -> Any:
        return sys.exit, ("the bomb went off",)


FAILURE = failure_to_bytes(Failure.of(TaskFailedError("task 1", failures=(KeyError("x"),))))
BOMBS = [pickle.dumps(Bomb(), protocol) for protocol in range(pickle.HIGHEST_PROTOCOL + 1)]
hostile = (
    st.binary()
    | st.sampled_from(BOMBS)
    | st.tuples(st.integers(0, len(FAILURE) - 1), st.integers(0, 255)).map(
        lambda change: FAILURE[: change[0]] + bytes([change[1]]) + FAILURE[change[0] + 1 :]
    )
    | st.integers(0, len(FAILURE) - 1).map(lambda length: FAILURE[:length])
    | st.tuples(st.sampled_from(BOMBS), st.integers(0, len(FAILURE))).map(
        lambda pair: FAILURE[: pair[1]] + pair[0] + FAILURE[pair[1] :]
    )
)


@given(hostile)
def test_random_bytes_make_a_failure_of_the_tables_or_a_protocol_error(content: bytes) -> None:
    before = set(sys.modules)
    try:
        failure = failure_from_bytes(content)
    except ProtocolError:
        pass
    else:
        kinds = {*OWN_ERRORS.values(), *BUILTINS.values(), type(None)}
        assert type(failure.exception) in kinds
        assert type(failure.message) is str
    assert set(sys.modules) == before


WATCHED = """
import pickle, sys
from pto_core.errors import ProtocolError
from pto_transport_zmq.remote.values import failure_from_bytes

contents = pickle.load(sys.stdin.buffer)
seen = []
sys.addaudithook(lambda event, arguments: seen.append(event))
for content in contents:
    try:
        failure_from_bytes(content)
    except ProtocolError:
        pass
decoding, seen = seen, []
try:
    pickle.loads(contents[0])
except SystemExit:
    pass
print(sorted(set(decoding)), "pickle.find_class" in seen)
"""


def test_decoding_a_bomb_looks_up_no_name_and_opens_no_file() -> None:
    arguments = msgspec.msgpack.encode({"type": "list", "items": [1]})
    contents = [*BOMBS, FAILURE, record(message="x", arguments=["x"]), arguments]
    done = subprocess.run(
        [sys.executable, "-c", WATCHED],
        input=pickle.dumps(contents),
        capture_output=True,
        check=True,
    )
    assert done.stdout.decode().split("\n")[0] == "[] True"
