"""Workers on agents that a launcher has placed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from remote_hosts import counted, double, on_sub, task_args, wait_until

from pto_core import Worker
from pto_core.config import load_core
from pto_core.interfaces import AgentCommand, Launcher, PlacedAgent
from pto_core.plugins import load_launcher
from pto_transport_zmq.launchers import AgentProcess
from pto_transport_zmq.link.interface import KeyPair
from pto_transport_zmq.link.loading import load_links
from pto_transport_zmq.remote.keys import write_client_keys


@pytest.fixture
def client() -> KeyPair:
    return load_links("zmq").key_pair()


@pytest.fixture
def launcher(client: KeyPair) -> Iterator[Launcher]:
    """Open the launcher `local`, and close it at the end."""
    opened = load_launcher("local").open(AgentCommand(client.public, "zmq"), load_core({}))
    yield opened
    opened.close()


def test_workers_run_on_placed_agents(launcher: Launcher, client: KeyPair, tmp_path: Path) -> None:
    placements = launcher.place(2, {"CPU": 1})
    wait_until(lambda: all(isinstance(launcher.address(p), PlacedAgent) for p in placements))
    with Worker(level=4) as worker:
        children, steps = [], []
        for number, placement in enumerate(placements):
            agent = launcher.address(placement)
            assert isinstance(agent, PlacedAgent)
            keys = tmp_path / str(number)
            write_client_keys(keys, "zmq", client, agent.key)
            child = Worker(
                level=3, num_sub_workers=1, host=agent.address, keys=keys, remote_transport="zmq"
            )
            steps.append(worker.register(on_sub(child.register(double))))
            children.append(worker.add_worker(child))
        given = counted(worker)
        results = [counted(worker) for _ in children]

        def graph(orch, args, config) -> None:
            for step, child, result in zip(steps, children, results, strict=True):
                orch.submit_next_level(step, task_args(given, result), worker=child)

        worker.run(graph)
        assert all((result == given * 2).all() for result in results)
        assert [launcher.lost(placement) for placement in placements] == [None, None]


def test_the_end_of_the_input_reaches_an_agent_beside_forked_children() -> None:
    process = AgentProcess(["sh", "-c", "cat > /dev/null; exit 5"], "host1")
    with Worker(level=3, num_sub_workers=1) as worker:
        worker.init()  # forks a child, which must not hold the input open
        process.end()
        wait_until(process.exit_reason)
        assert "exit code 5" in str(process.exit_reason())
    assert process.is_over()
