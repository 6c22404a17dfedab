"""Copies between buffers of two hosts travel directly, and only between permitted hosts."""

from __future__ import annotations

import json
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import counting_link
import numpy as np
import psutil
import pytest
from remote_hosts import Agent, allow_list, is_running, running_agent

from pto_core import RemoteBuffer, RemoteTensorRef, Worker
from pto_core.errors import (
    BufferLostError,
    CapacityError,
    ControlError,
    LinkError,
    RightsError,
    UsageError,
    WorkerClosedError,
)
from pto_transport_zmq.link.interface import KeyPair, with_port
from pto_transport_zmq.link.loading import load_links
from pto_transport_zmq.remote.address_space import AddressSpace, Range
from pto_transport_zmq.remote.lease import now_ns
from pto_transport_zmq.remote.peer_copies import COPIES_MAX, PeerCopies, PeerCopy, PeerLinks
from pto_transport_zmq.remote.requests import AnyReply, result_of
from pto_transport_zmq.remote.session import Identity

MIB = 1 << 20


def whole(buffer: RemoteBuffer) -> RemoteTensorRef:
    return RemoteTensorRef(buffer, buffer.nbytes, "uint8")


def content(worker: Worker, buffer: RemoteBuffer) -> np.ndarray[Any, Any]:
    found = np.empty(buffer.nbytes, np.uint8)
    worker.remote_copy_from(found, buffer)
    return found


def random_bytes(nbytes: int, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).integers(0, 255, nbytes, np.uint8)


def two_agents(folder: Path, link: str, keys: Path | None, stack: ExitStack) -> list[Agent]:
    agents = []
    for name in ("a", "b"):
        (folder / name).mkdir()
        agents.append(stack.enter_context(running_agent(folder / name, link, keys)))
    return agents


@pytest.fixture(scope="module")
def agents(keys: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Agent]]:
    """Run two agents with one key set for all tests of this file."""
    with ExitStack() as stack:
        yield two_agents(tmp_path_factory.mktemp("agents"), "zmq", keys, stack)


@pytest.fixture
def hosts(agents: list[Agent]) -> Iterator[list[Agent]]:
    """Return the two agents; the test must leave no session in them."""
    yield agents
    for agent in agents:
        agent.await_no_session()


def test_bytes_do_not_pass_through_the_parents_host(
    counting: str, keys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "traffic"
    log.touch()
    monkeypatch.setenv(counting_link.VARIABLE, str(log))
    nbytes = 20 * MIB + 12345
    with ExitStack() as stack:
        agents = two_agents(tmp_path, counting, None, stack)
        worker = stack.enter_context(Worker(level=4))
        source, target = (
            worker.remote_malloc(nbytes, child)
            for child in [worker.add_worker(one.worker(num_sub_workers=0)) for one in agents]
        )
        sent = random_bytes(nbytes)
        worker.remote_copy_to(source, sent)
        log.write_text("")
        worker.remote_copy(whole(target), whole(source))
        traffic: Counter[int] = Counter()
        for line in log.read_text().splitlines():
            pid, count = json.loads(line)
            traffic[pid] += count
        relays = {one.pid for one in psutil.Process().children()}
        far = {one.pid for agent in agents for one in agent.processes()}
        assert sum(traffic[pid] for pid in far) >= nbytes
        assert sum(traffic[pid] for pid in relays) < 100_000
        assert traffic.keys() <= relays | far
        assert np.array_equal(content(worker, target), sent)


def test_parts_are_copied_in_all_directions(hosts: list[Agent]) -> None:
    nbytes = 3 * MIB
    with Worker(level=4) as worker:
        children = [worker.add_worker(one.worker(num_sub_workers=0)) for one in hosts]
        buffers = [worker.remote_malloc(nbytes, child) for child in (*children, children[0])]
        expected = [random_bytes(nbytes, seed) for seed in range(3)]
        for buffer, one in zip(buffers, expected, strict=True):
            worker.remote_copy_to(buffer, one)
        chance = np.random.default_rng(5)
        for to, by in [(0, 1), (1, 0), (2, 0), (0, 2), (1, 2), (2, 2), (0, 0)]:
            half = nbytes // 2
            count = int(chance.choice([0, 1, half, chance.integers(half)]))
            there, here = (int(one) for one in chance.integers(0, half - count + 1, 2))
            here += half if to == by else 0  # no overlap
            worker.remote_copy(
                RemoteTensorRef(buffers[to], count, "uint8", there),
                RemoteTensorRef(buffers[by], count, "uint8", here),
            )
            expected[to][there : there + count] = expected[by][here : here + count]
            for buffer, one in zip(buffers, expected, strict=True):
                assert np.array_equal(content(worker, buffer), one)


def test_hosts_with_different_leases_copy(hosts: list[Agent]) -> None:
    with Worker(level=4) as worker:
        children = [
            worker.add_worker(one.worker(num_sub_workers=0, remote_lease_s=lease_s))
            for one, lease_s in zip(hosts, (3, 4.5), strict=True)
        ]
        source, target = (worker.remote_malloc(MIB, child) for child in children)
        for to, by in ((target, source), (source, target)):
            sent = random_bytes(MIB)
            worker.remote_copy_to(by, sent)
            worker.remote_copy(whole(to), whole(by))
            assert np.array_equal(content(worker, to), sent)


def test_wrong_copies_are_refused(hosts: list[Agent]) -> None:
    with Worker(level=4) as worker:
        children = [worker.add_worker(one.worker(num_sub_workers=0)) for one in hosts]
        first, second = (worker.remote_malloc(100, child) for child in children)
        part = RemoteTensorRef(first, 60, "uint8", 40)
        with pytest.raises(UsageError, match="the source has 60 bytes, the target 100"):
            worker.remote_copy(whole(second), part)
        with pytest.raises(UsageError, match="the source and the target of a copy overlap"):
            worker.remote_copy(RemoteTensorRef(first, 60, "uint8", 0), part)
        with pytest.raises(UsageError, match="is not a RemoteTensorRef"):
            worker.remote_copy(part, np.ones(60, np.uint8))  # type: ignore[arg-type]
        worker.remote_free(second)
        with pytest.raises(UsageError, match="was freed"):
            worker.remote_copy(whole(second), whole(first))
    with pytest.raises(WorkerClosedError):
        worker.remote_copy(whole(first), whole(first))


def test_hosts_with_and_without_keys_do_not_copy(hosts: list[Agent], tmp_path: Path) -> None:
    with running_agent(tmp_path, "zmq", None) as without, Worker(level=4) as worker:
        both = (hosts[0], without)
        children = [worker.add_worker(one.worker(num_sub_workers=0)) for one in both]
        first, second = (worker.remote_malloc(100, child) for child in children)
        with pytest.raises(UsageError, match="or only one of them has keys"):
            worker.remote_copy(whole(second), whole(first))


def test_a_client_needs_the_right_to_copy_between_hosts(keys: Path, tmp_path: Path) -> None:
    options = ("--allow", str(allow_list(tmp_path, keys, host_copies=False)))
    with running_agent(tmp_path, "zmq", keys, *options) as agent, Worker(level=4) as worker:
        children = [worker.add_worker(agent.worker(num_sub_workers=0)) for _ in range(2)]
        first, second = (worker.remote_malloc(100, child) for child in children)
        with pytest.raises(ControlError, match="may not copy buffers between this host") as info:
            worker.remote_copy(whole(second), whole(first))
        assert isinstance(info.value.__cause__, RightsError)


@pytest.mark.parametrize("lost", ["source", "target"])
def test_a_host_that_is_lost_in_a_copy_is_an_error(hosts: list[Agent], lost: str) -> None:
    with Worker(level=4, on_worker_death="restart") as worker:
        remotes = [one.worker(num_sub_workers=0, remote_lease_s=1) for one in hosts]
        children = [worker.add_worker(one) for one in remotes]
        source, target = (worker.remote_malloc(8 * MIB, child) for child in children)
        killed = hosts[0 if lost == "source" else 1]
        gateway = min(killed.processes(), key=lambda one: one.create_time())
        gateway.suspend()  # so that the copy begins, but cannot end before the kill
        psutil.Popen([sys.executable, "-c", _KILL_SOON, str(gateway.pid)])
        with pytest.raises((BufferLostError, ControlError)):
            worker.remote_copy(whole(target), whole(source))
        assert not is_running(gateway)
        kept = target if lost == "source" else source
        assert not content(worker, kept).any()  # the other host still works


class InterruptError(Exception):
    """The exception that the signal handler raises."""


def test_an_interrupted_copy_writes_nothing_more(hosts: list[Agent]) -> None:
    def interrupt(number: int, frame: Any) -> None:
        raise InterruptError

    nbytes = 8 * MIB
    with Worker(level=4) as worker:
        here, there = (worker.add_worker(one.worker(num_sub_workers=0)) for one in hosts)
        source = worker.remote_malloc(nbytes, here)
        target, other = (worker.remote_malloc(nbytes, there) for _ in range(2))
        worker.remote_copy_to(source, np.full(nbytes, 1, np.uint8))
        gateway = min(hosts[0].processes(), key=lambda one: one.create_time())
        before = signal.signal(signal.SIGALRM, interrupt)
        gateway.suspend()  # so that the copy cannot end before the interrupt
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.3)
            with pytest.raises(InterruptError):
                worker.remote_copy(whole(target), whole(source))
            sent = np.full(nbytes, 2, np.uint8)
            worker.remote_copy_to(target, sent)
        finally:
            signal.signal(signal.SIGALRM, before)
            gateway.resume()
        # When this copy is complete, the interrupted one would also be complete if it had
        # continued.
        worker.remote_copy(whole(other), whole(source))
        assert (content(worker, other) == 1).all()
        assert np.array_equal(content(worker, target), sent)


_KILL_SOON = "import os, sys, time; time.sleep(0.5); os.kill(int(sys.argv[1]), 9)"


def copy_of(nbytes: int, token: bytes, peer: KeyPair) -> PeerCopy:
    return PeerCopy(Range(0, nbytes), token, 10**9, peer.public)


class Ends:
    """The :class:`PeerCopies` of two gateways in this process."""

    def __init__(self, nbytes: int = 3 * MIB) -> None:
        plugin = load_links("zmq")
        self.pairs = [plugin.key_pair() for _ in range(3)]
        self.memory = [np.zeros(nbytes, np.uint8) for _ in range(2)]
        self.memory[0][:] = random_bytes(nbytes)
        identity = Identity.of_this_process("1", 10**9)
        self.address = "tcp://127.0.0.1:0"

        def copies(pair: KeyPair, memory: np.ndarray[Any, Any]) -> PeerCopies:
            links = PeerLinks(plugin, self.address, pair, identity, False)
            return PeerCopies(links, AddressSpace([(0, memoryview(memory))]))

        self.source, self.target = map(copies, self.pairs[:2], self.memory)
        self.stranger = copies(self.pairs[2], self.memory[0])
        self.replies: list[AnyReply] = []
        self.plugin = plugin

    def expect(self, nbytes: int, token: bytes = bytes(16)) -> str:
        port = self.target.receive(copy_of(nbytes, token, self.pairs[0]), now_ns())
        return with_port(self.address, port)

    def send(self, by: PeerCopies, nbytes: int, address: str, token: bytes = bytes(16)) -> Any:
        """Return the failure of a copy, or None."""
        by.send(copy_of(nbytes, token, self.pairs[1]), address, now_ns(), self.replies.append)
        while not self.replies:
            self.step(by)
        is_done, failure = result_of(self.replies.pop())
        return None if is_done else failure.exception

    def step(self, by: PeerCopies) -> None:
        for one in (by, self.target):
            one.step(now_ns())
        self.plugin.wait([*by.ends, *self.target.ends], 0.02)

    def close(self) -> None:
        for one in (self.source, self.target, self.stranger):
            one.close(now_ns())


@pytest.fixture
def ends() -> Iterator[Ends]:
    made = Ends()
    yield made
    made.close()


def test_a_copy_arrives_once_and_its_token_is_used_up(ends: Ends) -> None:
    address = ends.expect(3 * MIB)
    assert ends.send(ends.source, 3 * MIB, address) is None
    assert np.array_equal(*ends.memory)
    while ends.target.ends or ends.source.ends:
        ends.target.step(now_ns())
        ends.source.step(now_ns())
    ends.memory[1][:] = 0
    error = ends.send(ends.source, 3 * MIB, address)
    assert isinstance(error, LinkError)
    assert "hosts must reach each other at the addresses" in str(error)
    assert not ends.memory[1].any()


@pytest.mark.parametrize(
    ("who", "token", "nbytes"),
    [
        pytest.param("stranger", bytes(16), MIB, id="another key"),
        pytest.param("source", bytes([1] * 16), MIB, id="another token"),
        pytest.param("source", bytes(16), MIB + 1, id="too many bytes"),
    ],
)
def test_content_that_was_not_permitted_is_not_written(
    ends: Ends, who: str, token: bytes, nbytes: int
) -> None:
    address = ends.expect(MIB)
    error = ends.send(getattr(ends, who), nbytes, address, token)
    assert isinstance(error, LinkError)
    assert not ends.memory[1][MIB:].any()
    assert nbytes > MIB or not ends.memory[1].any()


def test_too_few_bytes_are_not_confirmed(ends: Ends) -> None:
    address = ends.expect(MIB)
    assert isinstance(ends.send(ends.source, MIB - 1, address), LinkError)


def test_the_number_of_copies_at_once_is_limited(ends: Ends) -> None:
    for number in range(COPIES_MAX):
        ends.expect(1, bytes([number] * 16))
    with pytest.raises(CapacityError, match="32 copies with other hosts at once"):
        ends.expect(1)


def test_a_freed_buffer_receives_nothing(ends: Ends) -> None:
    address = ends.expect(MIB)
    ends.target.free(Range(MIB - 1, 2 * MIB), now_ns())
    assert isinstance(ends.send(ends.source, MIB, address), LinkError)
    assert not ends.memory[1].any()


def test_a_copy_that_is_cancelled_writes_nothing_more() -> None:
    nbytes = 32 * MIB  # more than the buffers of the sockets hold: one step cannot copy all
    with closing(Ends(nbytes)) as ends:
        address = ends.expect(nbytes)
        copy = copy_of(nbytes, bytes(16), ends.pairs[1])
        ends.source.send(copy, address, now_ns(), ends.replies.append)
        while not ends.memory[1].any():
            ends.step(ends.source)
        ends.target.cancel(bytes([1] * 16), now_ns())  # another copy
        ends.target.cancel(bytes(16), now_ns())
        before = ends.memory[1].copy()
        while not ends.replies:
            ends.step(ends.source)
        is_done, failure = result_of(ends.replies.pop())
        assert not is_done
        assert isinstance(failure.exception, LinkError)
        assert np.array_equal(ends.memory[1], before)
