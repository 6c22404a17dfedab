"""The requests that every child answers between tasks."""

from __future__ import annotations

import pickle
import posixpath

import pytest

from pto_core import CallConfig
from pto_core.errors import ProtocolError, RightsError
from pto_core.worker.children import ChildContext, service
from pto_core.worker.failures import Failure
from pto_core.worker.handles import Delivery, by_code
from pto_core.worker.serialisation import NotImportableError, fingerprint

JOIN = Delivery("import", "posixpath:join", fingerprint(posixpath.join))
OTHER = Delivery("import", "posixpath:split", fingerprint(posixpath.join))
NOT_HERE = Delivery("import", "no_such_module:f", bytes(32))


class Loop:
    """A stand-in for the loop of a child."""

    def __init__(self) -> None:
        self.table: dict[bytes, object] = {}
        self.is_stopped = False

    def add(self, digest: bytes, callable_: object, takes_arguments: bool) -> None:
        self.table[digest] = callable_

    def forget(self, digest: bytes) -> None:
        del self.table[digest]

    def stop(self) -> None:
        self.is_stopped = True


@pytest.fixture
def loop() -> Loop:
    return Loop()


@pytest.fixture
def send_request(loop):
    def double(number: int) -> int:
        return 2 * number

    served = service._Service(loop, {"double": double})

    def ask(operation: str, *arguments: object) -> object:
        is_done, value = pickle.loads(served(pickle.dumps((operation, arguments))))
        if is_done:
            return value
        raise Failure.unpack(value).exception

    ask.service = served
    return ask


def test_a_request_is_answered_with_its_value(send_request) -> None:
    assert send_request("double", 21) == 42


def test_the_exception_of_a_request_is_returned_and_the_loop_continues(send_request) -> None:
    with pytest.raises(TypeError):
        send_request("double", None, 3)
    with pytest.raises(KeyError):
        send_request("forget", b"?" * 32)
    with pytest.raises(ProtocolError, match="does not support the request 'juggle'"):
        send_request("juggle")
    assert send_request("double", 1) == 2


def test_bytes_that_are_no_request_are_answered_with_a_failure(send_request) -> None:
    is_done, _ = pickle.loads(send_request.service(b"not a pickle"))
    assert not is_done


def leave() -> None:
    raise SystemExit(3)


def test_a_request_cannot_end_the_child(loop) -> None:
    served = service._Service(loop, {"leave": leave})
    is_done, failure = pickle.loads(served(pickle.dumps(("leave", ()))))
    assert (is_done, Failure.unpack(failure).type_name) == (False, "SystemExit")


def test_callables_are_registered_and_unregistered(send_request, loop) -> None:
    send_request("callable", b"d" * 32, [JOIN])
    assert loop.table[b"d" * 32]("a", "b") == "a/b"
    send_request("forget", b"d" * 32)
    assert loop.table == {}
    with pytest.raises(NotImportableError, match="ModuleNotFoundError"):
        send_request("callable", b"d" * 32, [NOT_HERE])
    assert loop.table == {}
    send_request("callable", b"d" * 32, [NOT_HERE, by_code(lambda: "by code")])
    assert loop.table[b"d" * 32]() == "by code"


def test_the_tasks_with_a_refused_configuration_fail(send_request) -> None:
    run = send_request.service.invoking(lambda *_: pytest.fail("the task runs"))
    send_request("config_refused", 7, Failure.of(RightsError("ann may not")).pack())
    for _ in range(2):
        with pytest.raises(RightsError, match="ann may not"):
            run(len, "args", 7)


def test_configurations_are_found_by_their_numbers(send_request) -> None:
    calls = []
    invoke = send_request.service.invoking(lambda *given: calls.append(given))
    configs = [CallConfig(block_dim=2), CallConfig(block_dim=3)]
    for number, config in zip((7, 8), configs, strict=True):
        send_request("config", number, config.pack())
    invoke(len, "args", 8)
    invoke(len, "args", 7)
    invoke(len, None, 0)
    assert calls == [(len, "args", configs[1]), (len, "args", configs[0]), (len, None, None)]
    with pytest.raises(KeyError):  # no configuration has the number 3
        invoke(len, None, 3)


def test_close_stops_the_loop(send_request, loop) -> None:
    send_request("close")
    assert loop.is_stopped


def test_a_child_context_has_inherited_and_delivered_callables() -> None:
    context = ChildContext(0, 0, None, {b"a": len}, {b"b": [NOT_HERE, JOIN]})
    assert context.callables()[b"a"] is len
    assert context.callables()[b"b"]("x", "y") == "x/y"
    with pytest.raises(NotImportableError, match="differs here from the code"):
        ChildContext(0, 0, None, {}, {b"c": [NOT_HERE, OTHER]}).callables()
