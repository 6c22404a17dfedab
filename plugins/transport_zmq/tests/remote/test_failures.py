"""Failures arrive on another host with exceptions; a gateway imports no module of the user."""

from __future__ import annotations

import importlib
import pickle
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from pto_core.errors import (
    ChildDiedError,
    PoisonedTask,
    ProtocolError,
    RemoteError,
    TaskFailedError,
    UsageError,
)
from pto_core.worker.failures import Failure
from pto_core.worker.serialisation import NotImportableError
from pto_transport_zmq.remote.requests import relayed_reply, result_of
from pto_transport_zmq.remote.values import (
    FAILURE_BYTES_MAX,
    TEXT_MAX,
    ExceptionRecord,
    ExceptionValue,
    encoded,
    failure_from_bytes,
    failure_to_bytes,
    from_exception,
    packed_to_record,
)


class SolverError(ValueError):
    pass


class Bomb:
    def __reduce__(self) -> Any:
        return sys.exit, ("the bomb went off",)


BOMBS = [pickle.dumps(Bomb(), protocol) for protocol in range(pickle.HIGHEST_PROTOCOL + 1)]


def test_a_failure_arrives_with_traceback_and_causes() -> None:
    try:
        try:
            raise SolverError("no solution")
        except SolverError as cause:
            raise ValueError("bad input") from cause
    except ValueError as error:
        failure = Failure.of(error)
    again = failure_from_bytes(failure_to_bytes(failure))
    assert (again.type_name, again.message) == ("ValueError", "bad input")
    assert again.traceback == failure.traceback
    assert type(again.exception) is ValueError
    cause = again.exception.__cause__
    assert isinstance(cause, RemoteError)
    assert cause.type_name == "SolverError"
    assert 'raise SolverError("no solution")' in cause.remote_traceback


@pytest.mark.parametrize("most_bytes", [2000, 10_000, 100_000])
@pytest.mark.parametrize("text", ["x", "\N{BUG}", "\udcff"])
def test_a_failure_is_cut_to_a_number_of_bytes(most_bytes: int, text: str) -> None:
    failure = Failure("E" * 300, text * 200_000, "first" + text * 200_000 + "last", KeyError(1))
    content = failure_to_bytes(failure, most_bytes)
    assert most_bytes / 9 < len(content) <= most_bytes
    again = failure_from_bytes(content)
    assert again.message.endswith("[...]")
    assert again.traceback.startswith("[...]")
    assert again.traceback.endswith("last")
    assert again.exception is None


def test_a_failure_that_fits_is_not_cut() -> None:
    failure = Failure.of(KeyError("x"))
    assert type(failure_from_bytes(failure_to_bytes(failure, 2000)).exception) is KeyError


def test_a_huge_failure_stays_below_the_limit_of_a_message() -> None:
    errors_ = tuple(UsageError("x" * TEXT_MAX) for _ in range(100))
    content = failure_to_bytes(Failure.of(TaskFailedError("x", failures=errors_)))
    assert len(content) <= FAILURE_BYTES_MAX
    assert failure_from_bytes(content).exception is None


def test_a_record_without_arguments_and_fields_is_text() -> None:
    made = from_exception(ExceptionValue([ExceptionRecord("ValueError", "")]))
    assert (type(made), str(made)) == (RemoteError, "ValueError")


# ---- failures that a child on this host packed ----


@pytest.fixture
def strange(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a user's module with an exception class; unload it at the end."""
    (tmp_path / "strange_module.py").write_text("class StrangeError(Exception):\n    pass\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    module = importlib.import_module("strange_module")
    yield module
    sys.modules.pop("strange_module", None)


def packed_by_child(error: BaseException, cause: BaseException | None = None) -> bytes:
    try:
        raise error from cause
    except BaseException as caught:  # noqa: BLE001 - the test accepts every exception
        return Failure.of(caught).pack()


def relayed(content: bytes) -> Failure:
    return failure_from_bytes(encoded(packed_to_record(content)))


def test_a_packed_failure_is_relayed_without_the_modules_of_the_user(strange: Any) -> None:
    cause = KeyError("x")
    cause.__cause__ = strange.StrangeError("deep")
    content = packed_by_child(strange.StrangeError("no solution"), cause)
    del sys.modules["strange_module"]
    failure = relayed(content)
    assert "strange_module" not in sys.modules
    assert (failure.type_name, failure.message) == ("StrangeError", "no solution")
    chain = [failure.exception]
    while chain[-1] is not None:
        chain.append(chain[-1].__cause__)
    assert [type(one) for one in chain[:-1]] == [RemoteError, KeyError, RemoteError]
    assert [str(one) for one in chain[:-1]] == [
        *("StrangeError: no solution", "'x'", "StrangeError: deep")
    ]
    assert chain[0].remote_traceback == failure.traceback
    assert "raise error from cause" in failure.traceback


def test_a_packed_failure_of_the_tables_is_relayed_whole() -> None:
    inner = ChildDiedError("it died", signal=9)
    poisoned = (PoisonedTask(2, "add", None, None, 1),)
    error = TaskFailedError("task 1", failures=(inner,), poisoned=poisoned)
    error.add_note("a note")
    failure = relayed(packed_by_child(error, NotImportableError("m", name="m")))
    again = failure.exception
    assert isinstance(again, TaskFailedError)
    assert (again.poisoned, again.failures[0].signal) == (poisoned, 9)
    assert again.__notes__ == ["a note"]
    assert isinstance(again.__cause__, NotImportableError)


@pytest.mark.parametrize("most_bytes", [500, 5000])
def test_a_packed_failure_that_was_cut_is_relayed_as_text(most_bytes: int) -> None:
    failure = relayed(Failure.of(ValueError("x" * 9000)).pack(most_bytes))
    assert failure.exception is None
    assert failure.type_name == "ValueError"


def test_a_failure_that_the_child_could_not_describe_is_relayed_as_text() -> None:
    """The loop of a child packs such a failure with None as the exception."""
    failure = relayed(pickle.dumps(("ValueError", "", "", None)))
    assert (failure.type_name, failure.exception) == ("ValueError", None)


@given(st.binary() | st.sampled_from(BOMBS))
def test_other_bytes_of_a_child_are_a_protocol_error(content: bytes) -> None:
    with pytest.raises(ProtocolError):
        packed_to_record(content)
    with pytest.raises(ProtocolError):
        relayed_reply(content)


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_bomb_in_a_packed_failure_becomes_text(bomb: bytes) -> None:
    content = pickle.dumps(("SolverError", "no solution", "its traceback", [("Bomb", "b", bomb)]))
    failure = relayed(content)
    assert type(failure.exception) is RemoteError
    assert failure.exception.remote_traceback == "its traceback"


def test_a_reply_of_a_child_is_relayed() -> None:
    assert result_of(relayed_reply(pickle.dumps((True, 2**63)))) == (True, 2**63)
    packed = packed_by_child(UsageError("no", name="x"))
    is_done, failure = result_of(relayed_reply(pickle.dumps((False, packed))))
    assert not is_done
    assert isinstance(failure.exception, UsageError)
    with pytest.raises(ProtocolError):
        relayed_reply(pickle.dumps((True, len)))
