"""Control requests and replies arrive on another host unchanged; invalid bytes are refused."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st

from pto_core import CallConfig
from pto_core.errors import ProtocolError, UsageError
from pto_core.toolchain.source_folders import SourceFolders
from pto_core.worker.failures import Failure
from pto_core.worker.handles import Delivery
from pto_transport_zmq.remote.callables import CODE_BYTES_MAX
from pto_transport_zmq.remote.program_modules import UsedModule
from pto_transport_zmq.remote.requests import (
    REQUEST_BYTES_MAX,
    decode_reply,
    decode_request,
    result_of,
    to_refusal,
    to_reply,
    to_request,
)
from pto_transport_zmq.remote.values import encoded

DIGEST, OTHER = bytes(range(32)), bytes(32)
IMPORT = Delivery("import", "module:function", OTHER)
CODE = Delivery("serialised", b"code")
REQUESTS: list[tuple[str, tuple[Any, ...]]] = [
    ("config", (3, CallConfig(block_dim=2).pack())),
    ("callable", (DIGEST, [IMPORT])),
    ("callable", (DIGEST, [IMPORT, CODE])),
    ("forget", (DIGEST,)),
    ("close", ()),
    ("trace_begin", (4, (0, 2**64 - 1))),
    ("trace_end", ()),
    ("trace_piece", (2**40,)),
    ("trace_clock", ()),
    ("free_buffer", (2**64 - 1,)),
    ("write_buffer", (2**63, 4096)),
    ("modules", ([UsedModule("numpy", "step", "2.1"), UsedModule("pack", "step", None, OTHER)],)),
]


@pytest.mark.parametrize(("operation", "arguments"), REQUESTS)
def test_a_request_arrives_with_its_arguments(
    operation: str, arguments: tuple[Any, ...], tmp_path: Path
) -> None:
    content = encoded(to_request(operation, arguments))
    again = decode_request(content)
    with SourceFolders(tmp_path) as folders:
        assert (again.operation, again.arguments(folders)) == (operation, arguments)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("operation", "arguments", "reason"),
    [
        ("format", (), "'format' cannot be sent"),
        ("malloc", (4096,), "'malloc' cannot be sent"),
        ("free_buffer", (-1,), r"\$.address"),
        ("free_buffer", ("4",), r"\$.address"),
        ("free_buffer", (2**64,), "free_buffer"),
        ("free_buffer", (), "address"),
        ("free_buffer", (object(),), "free_buffer"),
        ("forget", (b"short",), r"\$.digest"),
        ("config", (0, bytes(5000)), r"\$.packed"),
        ("callable", (DIGEST, []), r"\$.deliveries"),
        ("callable", (DIGEST, [CODE, IMPORT, CODE]), r"\$.deliveries"),
        ("callable", (DIGEST, [Delivery("chip", b"")]), "without chips"),
        (
            *("callable", (DIGEST, [Delivery("serialised", bytes(CODE_BYTES_MAX + 1))])),
            rf"length <= {CODE_BYTES_MAX} - at `\$.deliveries\[0\].code`",
        ),
    ],
)
def test_a_request_that_cannot_be_sent_is_refused(
    operation: str, arguments: tuple[Any, ...], reason: str
) -> None:
    with pytest.raises(UsageError, match=reason):
        to_request(operation, arguments)


@pytest.mark.parametrize(
    ("message", "field"),
    [
        ({"operation": "free_buffer", "address": -1}, r"\$.address"),
        ({"operation": "free_buffer", "address": 1.5}, r"\$.address"),
        ({"operation": "free_buffer", "address": 1, "more": 2}, "`more`"),
        ({"operation": "free_buffer"}, "`address`"),
        ({"operation": "exec", "code": "1"}, r"\$.operation"),
        ({"operation": "forget", "digest": bytes(31)}, r"\$.digest"),
        (
            {"operation": "callable", "digest": DIGEST, "deliveries": [{"type": "pickle"}]},
            r"\$.deliveries\[0\].type",
        ),
        (["close"], "array"),
    ],
)
def test_an_invalid_request_is_refused_by_its_field(message: object, field: str) -> None:
    with pytest.raises(ProtocolError, match=field):
        decode_request(msgspec.msgpack.encode(message))


def test_a_huge_request_is_not_read() -> None:
    with pytest.raises(ProtocolError, match=f"the limit is {REQUEST_BYTES_MAX}"):
        decode_request(bytes(REQUEST_BYTES_MAX + 1))


CONTENTS = [encoded(to_request(*one)) for one in REQUESTS]


@given(
    st.binary()
    | st.just(pickle.dumps(("free_buffer", (1,))))
    | st.tuples(st.sampled_from(CONTENTS), st.integers(0), st.integers(0, 255)).map(
        lambda change: (
            change[0][: change[1] % len(change[0])]
            + bytes([change[2]])
            + change[0][change[1] % len(change[0]) + 1 :]
        )
    )
)
def test_random_bytes_make_a_request_or_a_protocol_error(content: bytes) -> None:
    for decode in (decode_request, decode_reply):
        try:
            message = decode(content)
        except ProtocolError:
            continue
        assert decode(encoded(message)) == message


@pytest.mark.parametrize("result", [None, 2**64 - 1, (1, [b"x", {"a": 1.5}])])
def test_a_result_arrives(result: object) -> None:
    assert result_of(decode_reply(encoded(to_reply(result)))) == (True, result)


def test_a_result_that_is_not_plain_is_refused() -> None:
    with pytest.raises(UsageError, match="plain value"):
        to_reply(object())


def test_a_refusal_arrives_as_a_failure() -> None:
    failure = Failure.of(UsageError("no such address", name="address", value=2**63))
    is_done, again = result_of(decode_reply(encoded(to_refusal(failure))))
    assert not is_done
    assert isinstance(again.exception, UsageError)
    assert (again.exception.name, again.exception.value) == ("address", 2**63)
    assert (again.type_name, again.message) == (failure.type_name, failure.message)
