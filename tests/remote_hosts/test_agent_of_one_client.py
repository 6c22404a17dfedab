"""An agent that makes its own keys for one client, and ends with its standard input."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from remote_hosts import START_S, is_running, task_args, wait_until

from pto_core import Worker
from pto_core.errors import LinkError
from pto_transport_zmq.link.interface import KeyPair
from pto_transport_zmq.link.loading import load_links
from pto_transport_zmq.remote.agent_messages import GetStatus, Reply, Status
from pto_transport_zmq.remote.keys import write_client_keys
from pto_transport_zmq.remote.relay import Contact

COMMAND = (sys.executable, "-m", "pto_core.cli", "agent", "--set", "remote_transport=zmq", "serve")
LINE = re.compile(r"pto agent: serving at (\S+) with the key (\S+)\n")


@dataclass(frozen=True)
class OwnAgent:
    """An agent whose standard input this process holds. ``keys``: those of its client."""

    process: subprocess.Popen[str]
    address: str
    key: str
    keys: KeyPair

    def ask(self, keys: KeyPair, timeout_s: float) -> Reply:
        contact = Contact(load_links("zmq"), self.address, keys, self.key, is_insecure=False)
        return contact.ask(GetStatus(), timeout_s)


@contextmanager
def own_agent() -> Iterator[OwnAgent]:
    """Start an agent for a new client; at the end, end its input and wait for its exit."""
    keys = load_links("zmq").key_pair()
    with subprocess.Popen(
        [*COMMAND, "--bind=tcp://127.0.0.1:0", f"--client={keys.public}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            found = LINE.fullmatch(process.stdout.readline())
            assert found is not None
            yield OwnAgent(process, found[1], found[2], keys)
        finally:
            process.stdin.close()
            assert process.wait(START_S) == 0


def test_only_the_client_gets_an_answer_and_text_in_the_input_is_ignored() -> None:
    with own_agent() as agent:
        assert isinstance(agent.ask(agent.keys, 30), Status)
        with pytest.raises(LinkError):
            agent.ask(load_links("zmq").key_pair(), 1)
        assert agent.process.stdin is not None
        agent.process.stdin.write("a line\n")
        agent.process.stdin.flush()
        assert isinstance(agent.ask(agent.keys, 30), Status)
        assert agent.process.poll() is None


# Invariant: An agent with --client ends with all its sessions at the end of its standard input.
def test_the_end_of_the_input_ends_the_agent_and_its_sessions(tmp_path: Path) -> None:
    """The input of its sessions is empty."""

    def read(orch: Any, args: Any, config: Any) -> None:
        args.tensor(0).fill(len(os.read(0, 1)))

    with own_agent() as agent, Worker(level=4) as worker:
        keys = tmp_path / "keys"
        write_client_keys(keys, "zmq", agent.keys, agent.key)
        worker.add_worker(Worker(level=3, num_sub_workers=1, host=agent.address, keys=keys))
        step = worker.register(read)
        array = worker.shared_array((4,))
        array[:] = 5
        worker.run(lambda orch, args, config: orch.submit_next_level(step, task_args(array)))
        assert not array.any()
        processes = psutil.Process(agent.process.pid).children(recursive=True)
        assert len(processes) >= 4  # the server, a gateway, the Worker and its SUB child
        assert agent.process.stdin is not None
        agent.process.stdin.close()
        assert agent.process.wait(START_S) == 0
        wait_until(lambda: not any(is_running(one) for one in processes))


@pytest.mark.parametrize("options", [["--keys", "."], ["--allow", "clients"], ["--insecure"]])
def test_options_about_other_clients_are_refused(options: list[str]) -> None:
    done = subprocess.run(
        [*COMMAND, "--client=a", *options], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert f"--client and {options[0]} exclude each other" in done.stderr
