"""A soak test of children on other hosts: random kills on both sides, and random cuts.

usage: remote_kill_soak.py SECONDS [SEED]

As in kill_soak.py, a forked process creates random Workers and runs random graphs, and this process
observes it. The Workers have local children and children at an agent of this machine. This process
kills processes of both sides at random instants: relays, local children, gateways, remote Workers
and their children, both processes of the agent, and the top process. It cuts the connections, and
stops the network for shorter and longer than the lease. After each Worker, both sides must have the
same processes, descriptors, mappings and files as before it.
"""

from __future__ import annotations

import contextlib
import functools
import os
import secrets
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import psutil

if __name__ == "__main__":
    tests = Path(__file__).resolve().parents[1]
    sys.path += [str(tests / "remote_hosts"), str(tests / "links")]

import tcp_links
from kill_soak import Observer, report, soak
from kill_workers import run_seeds
from network import MODULE, NAME, VARIABLE, Network, running_network
from observer import PATIENCE_S
from remote_hosts import Agent, is_running, running_agent
from remote_kill_workers import LEASE_S, Place, live_remotely, warm_up_remotely
from sight import worker_memory
from subject import Fault, Subject

from pto_transport_zmq.link.loading import load_links
from pto_transport_zmq.remote.keys import new_keys

WORKERS_OF_A_PROCESS = 12
ACTS = {"parent's side": 4, "host's side": 6, "cut": 3, "stop": 1, "agent": 0.3}


class Host:
    """The agent of the other host, and the network to it."""

    def __init__(self, folder: Path, network: Network) -> None:
        self.folder, self.network = folder, network
        self.keys = folder / "keys"
        new_keys(self.keys, load_links("zmq"))
        self.temporary = folder / "tmp"  # TMPDIR of all processes of the host
        self._stack = contextlib.ExitStack()
        self.agent = self._started("tcp://127.0.0.1:0")
        self.idle = self.resources()

    def _started(self, address: str) -> Agent:
        bind = ("--bind", address)
        return self._stack.enter_context(
            running_agent(self.folder, "zmq", self.keys, *bind, may_die=True)
        )

    def resources(self) -> tuple[int, int, set[str]]:
        """Return the number of session processes and descriptors, and the temporary files."""
        main = self.agent.main()
        descriptors = main.num_fds() + self.agent.server().num_fds()
        return len(self.agent.processes()), descriptors, set(os.listdir(self.temporary))

    def kill_agent(self, *, server: bool) -> None:
        """Kill one of the agent's two processes; check that all others end; restart it."""
        everyone = [self.agent.main(), *self.agent.main().children(recursive=True)]
        (self.agent.server() if server else everyone[0]).kill()
        await_end(everyone)
        self._stack.close()
        self.agent = self._started(self.agent.address)

    def close(self) -> None:
        self._stack.close()


def await_end(processes: list[psutil.Process]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while left := [one for one in processes if is_running(one)]:
        if time.monotonic() > deadline:
            raise Fault(f"{left} outlived the agent")
        time.sleep(0.005)


@dataclass
class RemoteObserver(Observer):
    """An observer that also sees the other host."""

    phases: ClassVar = {"init": 0.2, "run": 0.75, "close": 0.3}

    host: Host | None = None

    def _kill_one(self) -> int:
        assert self.host is not None
        act = self.chosen.choices(list(ACTS), list(ACTS.values()))[0]
        deaths = 0
        if act == "parent's side":
            deaths = super()._kill_one()
        elif act == "host's side":
            victims = self.host.agent.processes()
            with contextlib.suppress(psutil.NoSuchProcess, IndexError):
                self.chosen.choice(victims).kill()
                deaths = 1
        elif act == "agent":
            self.host.kill_agent(server=self.chosen.random() < 0.5)
            deaths = 3  # at most one death for each remote child
        elif act == "cut":
            self.host.network.cut()
        else:
            self.host.network.stall()
            time.sleep(self.chosen.uniform(0, 2 * LEASE_S))
            self.host.network.stall(False)
            deaths = 3
        self.counts[f"acts: {act}"] += 1
        return deaths

    def _note_mappings(self) -> None:
        super()._note_mappings()
        assert self.host is not None
        self.places |= worker_memory(one.pid for one in self.host.agent.processes())

    def _check_unmapped(self) -> None:
        self._compare_host()
        super()._check_unmapped()

    def _compare_host(self) -> None:
        assert self.host is not None
        deadline = time.monotonic() + PATIENCE_S
        while (found := self.host.resources()) != self.host.idle:
            if time.monotonic() > deadline:
                processes = [(one.pid, one.name()) for one in self.host.agent.processes()]
                raise Fault(f"the host kept {found} instead of {self.host.idle}: {processes}")
            time.sleep(0.01)


@contextlib.contextmanager
def other_host() -> Iterator[Host]:
    """Start an agent and a network for the processes that this process forks."""
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        for part in ("tmp", "logs", "links"):
            (folder / part).mkdir()
        tcp_links.install(folder / "links", NAME, MODULE)
        sys.path.append(str(folder / "links"))
        stack.callback(sys.path.remove, str(folder / "links"))
        network = stack.enter_context(running_network(folder / "network"))
        with changed_environment({VARIABLE: network.place, "TMPDIR": str(folder / "tmp")}):
            host = Host(folder, network)
            stack.callback(host.close)
            copy_keys(host.keys, folder / "client")
            yield host
            host.close()


@contextlib.contextmanager
def changed_environment(values: dict[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(values)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def copy_keys(keys: Path, folder: Path) -> None:
    """Write the keys of a client for the link of the network."""
    folder.mkdir()
    for file in keys.iterdir():
        copy = folder / file.name
        copy.touch(0o600)
        copy.write_text(file.read_text().replace("zmq", NAME, 1))


def remote_soak(
    seconds: float, seed: int, workers: int = WORKERS_OF_A_PROCESS
) -> tuple[Counter[str], list[str]]:
    """Return a summary and the faults, like :func:`kill_soak.soak`."""
    with other_host() as host:
        folder = host.folder
        place = Place(host.agent.address, str(folder / "client"), NAME, str(folder / "logs"))
        live = functools.partial(live_remotely, place)
        body = functools.partial(run_seeds, live=live, warm=lambda: warm_up_remotely(place))

        def observe(subject: Subject, counts: Counter[str], seed: int) -> Observer:
            return RemoteObserver(subject, counts, seed, host=host)

        return soak(seconds, seed, workers, body, observe)


def main() -> None:
    seconds = float(sys.argv[1])
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else secrets.randbits(31)
    report(remote_soak, seconds, seed)


if __name__ == "__main__":
    main()
