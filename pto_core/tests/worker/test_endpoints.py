"""Python ends behind the native table: their results, errors and state."""

from __future__ import annotations

import pytest

from pto_core.errors import EndpointClosedError, ProtocolError
from pto_core.interfaces import API_VERSION, Health
from pto_core.interfaces.frame import Answer, AnswerKind, Frame, FrameKind, Outcome
from pto_devkit.transports import Capacity, Link

FRAME = Frame(FrameKind.TASK, 1, b"data")
ANSWER = Answer(AnswerKind.COMPLETED, 1)


class ScriptedEnd:
    """An end whose next results a test sets; a result that is an exception is raised."""

    def __init__(self):
        self.results = {}
        self.calls = []

    def _give(self, name, default):
        self.calls.append(name)
        result = self.results.get(name, default)
        if isinstance(result, BaseException):
            raise result
        return result

    def submit(self, frames):
        return self._give("submit", len(frames))

    def poll(self, limit):
        return self._give("poll", [])

    def receive(self, limit):
        return self._give("receive", [])

    def answer(self, answer):
        return self._give("answer", True)

    def close(self):
        self._give("close", None)

    def abandon(self):
        self._give("abandon", None)


class ScriptedTransport:
    name = "scripted"
    api_version = API_VERSION
    capabilities = frozenset({"in_order"})
    frame_limit = 4096

    def __init__(self):
        self.parent, self.child = ScriptedEnd(), ScriptedEnd()

    def health(self):
        return Health(ok=True)

    def connect(self, connection):
        self.connection = connection
        return self.parent, self.child


@pytest.fixture
def scripted():
    transport = ScriptedTransport()
    link = Link(transport, Capacity(4, 65536))
    parent, child = link.open_both()
    yield transport, link, parent, child
    parent.close()
    child.close()


def test_a_connection_respects_the_frame_limit_of_the_transport(scripted):
    transport, *_ = scripted
    assert transport.connection.queue_frames == 4
    assert transport.connection.queue_bytes == 4096
    assert transport.connection.child == "L3/child0"


def test_the_core_rings_for_an_end_in_python(scripted):
    transport, link, parent, child = scripted
    parent.submit([FRAME])
    assert (link.child_bell.rung, link.parent_bell.rung) == (1, 0)
    child.answer(ANSWER)
    assert (link.child_bell.rung, link.parent_bell.rung) == (1, 1)
    transport.parent.results["submit"] = 0
    transport.child.results["answer"] = False
    assert parent.submit([FRAME]) == 0
    assert child.answer(ANSWER) is False
    assert (link.child_bell.rung, link.parent_bell.rung) == (1, 1)


def test_an_error_of_close_is_reported_and_raised_by_nothing(scripted, monkeypatch):
    reported = []
    monkeypatch.setattr(
        "sys.unraisablehook", lambda unraisable: reported.append(unraisable.exc_value)
    )
    transport, _, parent, _ = scripted
    transport.parent.results["close"] = error = OSError("gone")
    parent.close()
    assert reported == [error]


def test_a_closed_end_still_returns_answers(scripted):
    transport, _, parent, _ = scripted
    transport.parent.results["submit"] = EndpointClosedError("gone")
    with pytest.raises(EndpointClosedError):
        parent.submit([FRAME])
    transport.parent.results["poll"] = [ANSWER.pack()]
    assert parent.poll() == [ANSWER]


@pytest.mark.parametrize("error", [ProtocolError("bad bytes"), OSError("no wire"), ValueError("x")])
def test_any_other_error_breaks_the_end_for_good(scripted, error):
    transport, _, parent, _ = scripted
    transport.parent.results["poll"] = error
    with pytest.raises(ProtocolError, match=f"{type(error).__name__}: .*{error}"):
        parent.poll()
    transport.parent.results.clear()
    with pytest.raises(ProtocolError):
        parent.submit([FRAME])
    assert transport.parent.calls == ["poll"]  # the end was not called again


@pytest.mark.parametrize(
    ("call", "result", "message"),
    [
        ("submit", 2, "an impossible number: 2"),
        ("submit", -1, "an impossible number: -1"),
        ("poll", [b"short"], "an answer of 5 bytes arrived"),
        ("poll", [ANSWER.pack() + b"more"], "an invalid head"),
        ("poll", [Answer(AnswerKind.REPLY, 1, data=bytes(4097)).pack()], "bytes arrived"),
        ("poll", ["text"], "is not a bytes object"),
        ("poll", [ANSWER.pack()] * 300, "returned too many"),
        ("poll", [bytes(14) + b"\x09\x00"], "an invalid head"),
    ],
)
def test_an_impossible_result_breaks_the_parents_end(scripted, call, result, message):
    transport, _, parent, _ = scripted
    transport.parent.results[call] = result
    with pytest.raises(ProtocolError, match=message):
        parent.submit([FRAME]) if call == "submit" else parent.poll()


@pytest.mark.parametrize(
    ("result", "message"),
    [
        ([b"short"], "a frame of 5 bytes arrived"),
        ([FRAME.pack() + b"more"], "an invalid head"),
        ([Frame(FrameKind.TASK, 1, bytes(4096)).pack()], "bytes arrived"),
        ([None], "is not a bytes object"),
    ],
)
def test_an_invalid_frame_breaks_the_childs_end(scripted, result, message):
    transport, _, _, child = scripted
    transport.child.results["receive"] = [FRAME.pack(), *result]
    assert child.receive(4) == [FRAME]  # the frame before the invalid one is valid
    with pytest.raises(ProtocolError, match=message):
        child.receive(4)


def test_data_above_a_limit_is_refused_without_a_call(scripted):
    transport, _, parent, child = scripted
    with pytest.raises(ProtocolError, match="of 4097 bytes is too large; the limit is 4096"):
        parent.submit([Frame(FrameKind.TASK, 1, bytes(4033))])
    with pytest.raises(ProtocolError, match="of 4033 bytes is too large; the limit is 4032"):
        child.answer(Answer(AnswerKind.COMPLETED, 1, Outcome.FAILED, bytes(4033)))
    assert transport.parent.calls == transport.child.calls == []
    assert parent.submit([FRAME]) == 1
    assert child.answer(ANSWER)


def test_each_process_abandons_the_others_end():
    transport = ScriptedTransport()
    link = Link(transport, Capacity(4, 4096))
    link.open_parent()
    assert (transport.parent.calls, transport.child.calls) == ([], ["abandon"])
    transport = ScriptedTransport()
    link = Link(transport, Capacity(4, 4096))
    link.open_child()
    assert (transport.parent.calls, transport.child.calls) == (["abandon"], [])


@pytest.mark.parametrize(
    ("kind", "packed", "message"),
    [
        (Frame, b"x" * 63, "63 bytes are not a complete frame: its head alone has 64 bytes"),
        (Frame, Frame(FrameKind.TASK, 1).pack() + b"x", "declares 0 bytes of data, but has 1"),
        (Frame, bytes(60) + b"\x07\x00\x00\x00", "the frame has an invalid FrameKind: 7"),
        (Answer, b"x" * 15, "15 bytes are not a complete answer"),
        (Answer, bytes(14) + b"\x03\x00", "the answer has an invalid Outcome: 3"),
    ],
)
def test_invalid_packed_bytes_are_refused(kind, packed, message):
    with pytest.raises(ProtocolError, match=message):
        kind.unpack(packed)


def test_frames_and_answers_survive_packing():
    frame = Frame(FrameKind.CONTROL, 2**63, b"abc", bytes(range(32)), 3, 2**40, 5, 1)
    assert Frame.unpack(frame.pack()) == frame
    answer = Answer(AnswerKind.REPLY, 7, Outcome.FAILED, b"why")
    assert Answer.unpack(answer.pack()) == answer
