"""Links with faults have the requested faults, and the same faults for the same seed."""

from __future__ import annotations

import importlib
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import tcp_links
from link_contract import Faults, FaultyLinks

from pto_transport_zmq.link.interface import Links

MESSAGES = 200


@pytest.fixture
def inner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Links:
    tcp_links.install(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return importlib.import_module("pto_link_tcp").plugin.links


class Line:
    """A listener and a link with faults; records the numbers of the messages that arrive."""

    def __init__(self, links: FaultyLinks, stack: ExitStack) -> None:
        self.links = links
        self.listener = links.listen("tcp://127.0.0.1:0")
        self.link = links.dial(self.listener.address)
        self.arrived: list[int] = []
        self.refusals = 0
        for end in (self.listener, self.link):
            stack.callback(end.close)

    def run(self) -> list[int]:
        """Send all messages, repeat those that are refused, and receive until nothing arrives."""
        for number in range(MESSAGES):
            while not self.link.send([number.to_bytes(4, "little")]):
                self.refusals += self.link.connections > 0
                self.step()
            self.step()
        for _ in range(20):
            self.step(0.005)
        return self.arrived

    def step(self, timeout_s: float = 0.001) -> None:
        ready = self.links.wait([self.listener, self.link], timeout_s)
        assert set(map(id, ready.ends)) <= {id(self.listener), id(self.link)}
        while (message := self.listener.receive()) is not None:
            self.arrived.append(int.from_bytes(message.parts[0], "little"))


def arrived(inner: Any, faults: Faults) -> tuple[list[int], int]:
    with ExitStack() as stack:
        line = Line(FaultyLinks(inner, faults), stack)
        return line.run(), line.refusals


def test_without_faults_everything_arrives(inner: Links) -> None:
    assert arrived(inner, Faults())[0] == list(range(MESSAGES))


def test_lost_messages_are_the_same_for_the_same_seed(inner: Links) -> None:
    first, _ = arrived(inner, Faults(seed=1, lose=0.2))
    assert first == sorted(first)
    assert 0.65 * MESSAGES < len(first) < 0.95 * MESSAGES
    assert arrived(inner, Faults(seed=1, lose=0.2))[0] == first
    assert arrived(inner, Faults(seed=2, lose=0.2))[0] != first


def test_a_clogged_link_refuses_and_loses_nothing(inner: Links) -> None:
    numbers, refusals = arrived(inner, Faults(seed=3, clog=0.5))
    assert numbers == list(range(MESSAGES))
    assert refusals > MESSAGES / 2


def test_doubled_messages_arrive_twice(inner: Links) -> None:
    numbers, _ = arrived(inner, Faults(seed=4, duplicate=0.3))
    assert set(numbers) == set(range(MESSAGES))
    assert numbers == sorted(numbers)
    assert 1.1 * MESSAGES < len(numbers) < 1.5 * MESSAGES


def test_reordered_messages_all_arrive(inner: Links) -> None:
    with ExitStack() as stack:
        line = Line(FaultyLinks(inner, Faults(seed=5, reorder=0.3)), stack)
        while not line.link.send([MESSAGES.to_bytes(4, "little")]):
            line.step()
        # in bursts, because wait sends the messages that were held back
        for number in range(MESSAGES):
            while not line.link.send([number.to_bytes(4, "little")]):
                line.step()
            if number % 10 == 9:
                line.step()
        for _ in range(20):
            line.step(0.005)
    assert sorted(line.arrived) == list(range(MESSAGES + 1))
    assert line.arrived[1:] != sorted(line.arrived[1:])


def test_a_cut_after_a_message_makes_a_new_connection(inner: Links) -> None:
    with ExitStack() as stack:
        line = Line(FaultyLinks(inner, Faults(cut_after=(10, 50))), stack)
        numbers = line.run()
        assert line.link.connections == 3
    assert numbers == sorted(numbers)
    assert set(range(MESSAGES)) - set(numbers) <= {*range(8, 11), *range(48, 51)}


def test_a_listener_has_faults_of_its_own_for_each_peer(inner: Links) -> None:
    with ExitStack() as stack:
        line = Line(FaultyLinks(inner, Faults(seed=6, clog=0.5)), stack)
        line.run()
        line.step()
        while not line.link.send([b"last"]):
            line.step()
        while True:
            line.links.wait([line.listener, line.link], 0.01)
            message = line.listener.receive()
            if message is not None:
                break
        for number in range(20):
            while not line.listener.send(message.peer, [bytes([number])]):
                line.links.wait([line.listener, line.link], 1.0)
            while (answer := line.link.receive()) is None:
                line.links.wait([line.listener, line.link], 1.0)
            assert answer.parts == [bytes([number])]
