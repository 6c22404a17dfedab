"""The gateway reports the exit of the Worker."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from typing import Any

from remote_link import IDENTITY, SECOND, Pair

from pto_core.errors import ChildDiedError
from pto_transport_zmq.remote.gateway import Gateway
from pto_transport_zmq.remote.lease import now_ns
from pto_transport_zmq.remote.messages import MessageKind

LONG = dataclasses.replace(IDENTITY, lease_ns=60 * SECOND)
TURNS_MAX = 100


class Line:
    """A stand-in for the connection of the gateway, whose relay ends the session after LOST."""

    def __init__(self, pair: Pair) -> None:
        self.pair = pair
        self.kinds: list[int] = []
        self.turns = 0

    def receive(self, now: int) -> list[Any]:
        return []

    def flush(self, now: int) -> None:
        pass

    def wait(self, timeout_s: float, descriptors: Collection[int]) -> list[int]:
        self.turns += 1
        self.kinds += [message.kind for message in self.pair.exchange()[0]]
        if MessageKind.LOST in self.kinds or self.turns == TURNS_MAX:
            self.pair.gateway.close("the relay has ended the session", now_ns())
        return []


class Frames:
    """A stand-in for the frames, with answers that the Worker sent before its exit."""

    def __init__(self, pair: Pair, answers: int) -> None:
        self.pair = pair
        self.answers = answers

    @property
    def has_answers(self) -> bool:
        return self.answers > 0

    def step(self, now: int) -> None:
        while self.answers and self.pair.gateway.send(MessageKind.REPLY, [b"answer"]):
            self.answers -= 1


class Processes:
    def kill_all(self) -> None:
        pass


def test_an_exit_is_reported_after_the_answers_when_the_window_was_full() -> None:
    pair = Pair(LONG, LONG, now_ns()).open()
    while pair.gateway.send(MessageKind.OUTPUT, [b"line\n"]):
        pass
    line = Line(pair)
    window = pair.gateway.control.outbox.limits.messages
    parts = {
        "_session": pair.gateway,
        "_end": line,
        "_frames": Frames(pair, window + 1),
        "_processes": Processes(),
        "_outputs": {},
        "_plan": type("Plan", (), {"memory": None}),
    }
    gateway = Gateway.__new__(Gateway)
    vars(gateway).update(parts)
    gateway._lose(ChildDiedError("the Worker has exited"))
    answers = [kind for kind in line.kinds if kind != MessageKind.OUTPUT]
    assert answers == [MessageKind.REPLY] * (window + 1) + [MessageKind.LOST]
