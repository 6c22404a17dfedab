"""Strangers at the addresses of an agent and its sessions: no code runs, no client is disturbed."""

from __future__ import annotations

import os
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import impostor
import numpy as np
import psutil
import pytest
from network import GREETING_BYTES, NAME, Network
from remote_hosts import Agent, counted, running_agent, task_args, wait_until

from pto_core import Worker
from pto_core.errors import ChildStartError, PtoError, TaskFailedError
from pto_devkit.checks import random_numbers
from pto_transport_zmq.link.interface import split_address
from pto_transport_zmq.remote.messages import MessageKind

SOURCES = 4  # source addresses, because one address has too few ports
MANY, FEW = 12_000, 500  # descriptors
# The connections to the ports of an agent and of a session. With few descriptors, each process is
# offered twice as many as it can accept.
HALF_OPEN = {MANY: 10_000, FEW: 2_000}
GROWTH_BYTES = 96 << 20
TEXT = b"No stranger on the way may read this sentence. "
# A ZMTP greeting without authentication, and the beginning of a frame of 2^62 bytes.
GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00NULL" + bytes(16) + b"\x00" + bytes(31)
GIANT = GREETING + b"\x02" + (1 << 62).to_bytes(8, "big")


def add_one(orch: Any, args: Any, config: Any) -> None:
    args.tensor(1)[:] = args.tensor(0) + 1


@contextmanager
def session(agent: Agent, **settings: Any) -> Iterator[Any]:
    """Start a session; yield a function that runs a task in it and checks its result."""
    with Worker(level=4) as worker:
        step = worker.register(add_one)
        there = worker.add_worker(agent.worker(num_sub_workers=0, **settings))
        x, y = counted(worker), counted(worker)
        worker.init()

        def run() -> None:
            x[:] += 1
            worker.run(lambda o, a, c: o.submit_next_level(step, task_args(x, y), worker=there))
            assert np.array_equal(y, x + 1)

        run()
        yield run


@contextmanager
def descriptors(most: int) -> Iterator[None]:
    """Change the limit of descriptors for this process and for the processes that it starts."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, max(most, before[1])))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def session_port(agent: Agent) -> int:
    """Return the port of the only session."""
    ports = {
        one.laddr.port
        for process in agent.processes()
        for one in process.net_connections("tcp")
        if one.status == psutil.CONN_LISTEN
    } - {split_address(agent.address)[1]}
    assert len(ports) == 1
    return ports.pop()


def connection(port: int, number: int) -> socket.socket:
    source = (f"127.0.0.{2 + number % SOURCES}", 0)
    return socket.create_connection(("127.0.0.1", port), timeout=10, source_address=source)


@pytest.mark.parametrize("limit", [MANY, FEW])
def test_half_open_connections_do_not_disturb_clients(
    keys: Path, tmp_path: Path, limit: int
) -> None:
    """With one limit the agent has enough descriptors for all connections; it reaches the other."""
    with ExitStack() as stack:
        with descriptors(limit):
            agent = stack.enter_context(running_agent(tmp_path, "zmq", keys))
        stack.enter_context(descriptors(MANY))
        run = stack.enter_context(session(agent))
        served = [agent.server(), *agent.processes()]
        before = [one.memory_info().rss for one in served]
        ports = [split_address(agent.address)[1], session_port(agent)]
        with half_open(ports, HALF_OPEN[limit], run):
            run()
            grown = [one.memory_info().rss - old for one, old in zip(served, before, strict=True)]
            assert max(grown) < GROWTH_BYTES
            if limit == MANY:
                with session(agent) as another:
                    another()
        run()
        with session(agent) as another:
            another()


@contextmanager
def half_open(ports: list[int], count: int, run: Callable[[], None]) -> Iterator[None]:
    """Open connections that never complete their handshake; run a task after every 500th."""
    with ExitStack() as stack, random_numbers(None) as numbers:
        begun = [b"", GREETING[:10], GREETING, GIANT, b"GET / HTTP/1.1\r\n\r\n"]
        for number in range(count):
            made = stack.enter_context(connection(ports[number % len(ports)], number))
            text = [*begun, numbers.randbytes(numbers.randint(1, 200))][number % 6]
            made.setblocking(False)
            with suppress(OSError):  # the agent may have closed the connection
                made.send(text)
            if number % 500 == 0:
                run()
        yield


def secretive(word: str) -> Callable[..., None]:
    """Return a graph function that reads, writes, prints and raises a text."""

    def graph(orch: Any, args: Any, config: Any) -> None:
        args.tensor(1)[:] = args.tensor(0)
        print(TEXT.decode(), flush=True)
        if word == "raise":
            raise ValueError(TEXT.decode())

    return graph


def whisper(agent: Agent, **settings: Any) -> None:
    """Send the text in a function, an array, a result, an output and an exception."""
    with Worker(level=4) as worker:
        steps = [worker.register(secretive(word)) for word in ("write", "raise")]
        there = worker.add_worker(agent.worker(num_sub_workers=0, **settings))
        x, y = (worker.shared_array((len(TEXT) * 1000,), "uint8") for _ in range(2))
        x[:] = np.frombuffer(TEXT * 1000, np.uint8)
        submit = [
            lambda o, a, c, step=step: o.submit_next_level(step, task_args(x, y), worker=there)
            for step in steps
        ]
        worker.run(submit[0])
        assert np.array_equal(x, y)
        with pytest.raises(TaskFailedError, match="may read this sentence"):
            worker.run(submit[1])


@pytest.mark.parametrize("has_keys", [True, False])
def test_the_traffic_of_a_session_has_no_plain_content(
    keys: Path, networked_keys: Path, network: Network, tmp_path: Path, has_keys: bool
) -> None:
    """Without keys, as a control, the recorded traffic contains the text: the recording works."""
    with running_agent(tmp_path, "zmq", keys if has_keys else None) as agent:
        whisper(agent, remote_transport=NAME, keys=networked_keys if has_keys else None)
    for direction in ("to_host", "to_parent"):
        seen = b"".join(network.recorded(direction))
        assert len(seen) > len(TEXT) * 1000
        assert (TEXT[:16] in seen) is not has_keys


def replay(made: socket.socket, stream: bytes) -> None:
    """Send the bytes of a recorded connection; wait for the answer to each step of the handshake.

    ZeroMQ closes a connection whose first message arrives before ZeroMQ has sent its own part of
    the handshake.
    """
    made.sendall(stream[:GREETING_BYTES])
    receive(made, GREETING_BYTES)
    first = GREETING_BYTES + 2 + stream[GREETING_BYTES + 1]  # the end of a short command
    made.sendall(stream[GREETING_BYTES:first])
    _, size = receive(made, 2)
    receive(made, size)
    with suppress(OSError):  # the agent may have closed the connection
        made.sendall(stream[first:])


def receive(made: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        part = made.recv(count - len(found))
        assert part, f"the connection was closed after {len(found)} bytes"
        found += part
    return found


@pytest.mark.parametrize("has_keys", [True, False])
def test_a_replayed_connection_starts_nothing(
    keys: Path, networked_keys: Path, network: Network, tmp_path: Path, has_keys: bool
) -> None:
    """Without keys, as a control, the same bytes start a session at another agent."""
    given = keys if has_keys else None
    with ExitStack() as stack:
        agents = []
        for name in ("first", "second"):
            (tmp_path / name).mkdir()
            agents.append(stack.enter_context(running_agent(tmp_path / name, "zmq", given)))
        with session(agents[0], remote_transport=NAME, keys=networked_keys if has_keys else None):
            streams = network.recorded("to_host")  # recorded before the request to end the session
        for number, stream in enumerate(streams):
            for agent in agents:
                port = split_address(agent.address)[1]
                replay(stack.enter_context(connection(port, number)), stream)
        if has_keys:
            time.sleep(1)
            assert agents[1].processes() == []
        else:
            wait_until(agents[1].processes)
        with session(agents[0]) as run:
            run()


def refused_start(agent: Agent, **settings: Any) -> None:
    with Worker(level=4) as worker:
        worker.add_worker(agent.worker(**settings))
        with pytest.raises(ChildStartError, match="the address, the keys and the firewall"):
            worker.init()
    assert agent.processes() == []


def test_a_client_with_keys_uses_no_agent_without_keys(keys: Path, tmp_path: Path) -> None:
    with running_agent(tmp_path, "zmq", None) as agent:
        refused_start(agent, keys=keys)


def test_a_network_cannot_remove_the_keys(
    agent: Agent, networked_keys: Path, network: Network
) -> None:
    network.weaken()
    refused_start(agent, remote_transport=NAME, keys=networked_keys)
    network.weaken(False)
    with session(agent, remote_transport=NAME, keys=networked_keys) as run:
        run()


def bomb_at(file: Path) -> type[Exception]:
    """Return an exception whose unpickling appends a process id to a file."""

    class Bomb(Exception):
        def __reduce__(self) -> Any:
            return os.system, (f"echo $PPID >> {file}",)

    return Bomb


@pytest.mark.parametrize("is_remote", [True, False])
def test_an_exception_of_a_host_runs_nothing_elsewhere(
    agent: Agent, tmp_path: Path, is_remote: bool
) -> None:
    """Only the process that raises the exception, or its local parent, may unpickle it."""
    file = tmp_path / "exploded"
    bomb = bomb_at(file)

    def fail(orch: Any, args: Any, config: Any) -> None:
        args.tensor(0)[0] = os.getpid()
        raise bomb("no luck")

    def tell(orch: Any, args: Any, config: Any) -> None:
        args.tensor(0)[0] = os.getpid()

    with Worker(level=4) as worker:
        steps = [worker.register(fail), worker.register(tell)]
        local = Worker(level=3, num_sub_workers=0)
        there = worker.add_worker(agent.worker(num_sub_workers=0) if is_remote else local)
        y = worker.shared_array((1,), "int64")
        submit = [
            lambda o, a, c, step=step: o.submit_next_level(step, task_args(y), worker=there)
            for step in steps
        ]
        with pytest.raises(TaskFailedError, match="Bomb: no luck"):
            worker.run(submit[0])
        worker.run(submit[1])
    pids = set(map(int, file.read_text().split())) - {int(y[0])}
    assert pids == (set() if is_remote else {os.getpid()})


@pytest.mark.parametrize("kind", ["agent", "ENDED", "REPLY", "LOST", "CHANGES"])
def test_a_hostile_host_runs_nothing_in_its_parent(
    agent: Agent, keys: Path, tmp_path: Path, kind: str
) -> None:
    """The protocol's decoders refuse the hostile bytes; only the hostile host's session ends."""
    file = tmp_path / "exploded"
    number = 0 if kind == "agent" else int(MessageKind[kind])
    command = [sys.executable, impostor.__file__, str(keys), str(number), str(file)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with ExitStack() as stack:
        run = stack.enter_context(session(agent))
        process = stack.enter_context(
            subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        )
        stack.callback(process.kill)
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        worker = stack.enter_context(Worker(level=4, on_worker_death="reroute"))
        hostile = Worker(level=3, num_sub_workers=0, host=address, keys=keys, remote_lease_s=1)
        step, there = worker.register(add_one), worker.add_worker(hostile)
        x, y = counted(worker), counted(worker)
        refusal = r"L4/host0: .*(an encoded .* is invalid|ends of frames|a piece has)"
        with pytest.raises(PtoError, match=refusal):
            worker.run(lambda o, a, c: o.submit_next_level(step, task_args(x, y), worker=there))
        assert not file.exists()
        run()
