"""The launcher on the nodes of a cluster. Most tests use a custom resource of their own.

Each body runs in a forked process, because the pytest process must not connect to Ray.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

import psutil
import pytest

from pto_core.errors import CapacityError, LinkError
from pto_core.interfaces import Pending
from pto_devkit.launchers.subject import LauncherSubject, LauncherWorld, until
from pto_devkit.transports.processes import ForkedProcess, apart

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("address")]
HOLDER = """
import ray, sys
ray.init(log_to_driver=False)
@ray.remote(num_cpus=0, resources={"held": 1})
class Holder:
    def is_here(self): return True
holder = Holder.remote()
print(ray.get(holder.is_here.remote()), flush=True)
sys.stdin.read()
"""


def world() -> LauncherWorld:
    return LauncherSubject.load("ray", {}).world()


def place(made: LauncherWorld, count: int, **resources: float) -> Sequence[Any]:
    return made.launcher.place(count, resources)


def node_of(placement: Any) -> str:
    return str(placement).partition("node ")[2].rstrip(")")


def agents_of(key: str) -> list[psutil.Process]:
    """Return the agents that permit only the client with this key."""
    return [
        process
        for process in psutil.process_iter()
        if _is_agent(process, key) and not _is_agent(process.parent(), key)
    ]


def _is_agent(process: psutil.Process | None, key: str) -> bool:
    try:
        return process is not None and f"--client={key}" in process.cmdline()
    except psutil.Error:
        return False


def test_agents_reserve_their_resources_and_see_their_devices(cluster: Any) -> None:
    node = cluster.nodes[0]

    def body() -> None:
        with world() as made:
            placed = place(made, 2, NPU=2, CPU=0.5)
            agents = made.agents(placed)
            assert [node_of(one) for one in placed] == [node[:8]] * 2
            assert all(agent.address.startswith("tcp://") for agent in agents)
            seen = [one.environ() for one in agents_of(made.client.keys.public)]
            devices = sorted(one["ASCEND_RT_VISIBLE_DEVICES"] for one in seen)
            assert devices == ["0,1", "2,3"]

    apart(body)


def test_agents_are_spread_over_nodes(cluster: Any) -> None:
    nodes = {node[:8] for node in cluster.nodes}

    def body() -> None:
        with world() as made:
            placed = place(made, 2, pair=1)
            assert {str(one) for one in placed} == {"ray 1", "ray 2"}
            made.agents(placed)
            assert {node_of(one) for one in placed} == nodes

    apart(body)


def test_agents_that_can_never_be_placed_are_refused(cluster: Any) -> None:
    node = cluster.nodes[0]

    def body() -> None:
        with world() as made:
            with pytest.raises(CapacityError) as info:
                place(made, 4, few=1)
            assert "4 hosts with few=1 each were requested" in str(info.value)
            assert "resources for 3 beside the 0 hosts of this launcher" in str(info.value)
            assert f"(node {node[:8]}): CPU=1, NPU=4, few=3, " in str(info.value)
            assert not agents_of(made.client.keys.public)
            first, second = place(made, 2, few=1)
            with pytest.raises(CapacityError, match=r"for 1 beside the 2 hosts"):
                place(made, 2, few=1)
            made.agents([first, second])
            with pytest.raises(CapacityError, match=r"for 1 beside the 2 hosts"):
                place(made, 2, few=1)
            made.release(first)
            made.agents(place(made, 2, few=1))
            with pytest.raises(CapacityError, match=r"no_such=1 each .* resources for 0"):
                place(made, 1, no_such=1)

    apart(body)


def test_amounts_that_ray_refuses_are_the_reason_of_the_loss() -> None:

    def body() -> None:
        with world() as made:
            (placement,) = place(made, 1, NPU=2.5)
            reason = made.reason_of_loss(placement)
            assert "Ray refuses the resources NPU=2.5" in reason
            made.release(placement)

    apart(body)


def test_an_agent_waits_for_resources_of_others() -> None:
    command = [sys.executable, "-c", HOLDER]
    holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with holder:
        assert holder.stdout is not None
        assert holder.stdin is not None
        assert holder.stdout.readline() == "True\n"
        end = holder.stdin

        def body() -> None:
            with world() as made:
                (placement,) = place(made, 1, held=1)
                until(lambda: made.lost(placement) is None and _free(made, placement) == 0, "0")
                time.sleep(1)
                assert isinstance(made.address(placement), Pending)
                os.kill(holder.pid, signal.SIGKILL)
                made.agents([placement])

        apart(body)
        end.close()


def _free(made: LauncherWorld, placement: Any) -> float:
    found = made.address(placement)
    assert isinstance(found, Pending)
    wanted, _, free = found.reason.partition("; free on all nodes together: held=")
    assert wanted.endswith("it needs held=1 on one node")
    return float(free)


# Invariant: The loss of a node or of an actor is reported with Ray's reason, and another agent can
# follow.
def test_a_lost_node_and_a_lost_actor_are_reported(cluster: Any) -> None:
    nodes = [cluster.add(lost=1) for _ in range(2)]

    def body() -> None:
        with world() as made:
            placed = place(made, 2, lost=1)
            agents = dict(zip(placed, made.agents(placed), strict=True))
            dead, kept = sorted(placed, key=lambda one: node_of(one) != nodes[0][:8])
            cluster.kill(nodes[0])
            reason = made.reason_of_loss(dead)
            assert "actor died" in reason
            assert nodes[0] in reason
            made.client.expect_end(agents[dead], "after the end of its node")
            made.client.expect_answer(agents[kept])
            made.release(dead)

            (agent,) = agents_of(made.client.keys.public)
            agent.parent().kill()
            assert "actor died" in made.reason_of_loss(kept)
            made.client.expect_end(agents[kept], "after the end of its actor")
            made.release(kept)
            made.agents(place(made, 1, lost=1))

    apart(body)


def test_no_process_and_no_reservation_survives_a_killed_launcher() -> None:
    reports, write = os.pipe()

    def own() -> None:
        made = world()
        made.agents(place(made, 1, kept=1))
        os.write(write, made.client.keys.public.encode())
        time.sleep(3600)

    owner = ForkedProcess(own)
    os.close(write)
    try:
        key = os.read(reports, 4096).decode()
        (agent,) = agents_of(key)
        left = [agent, agent.parent(), *agent.children(recursive=True)]
    finally:
        owner.discard()
    until(lambda: not any(one.is_running() for one in left), "waiting for the end of the actor")

    def body() -> None:
        with world() as made:
            made.agents(place(made, 1, kept=1))

    apart(body)


# Invariant: No call waits for a cluster that does not answer.
def test_a_cluster_that_goes_away(other_cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", other_cluster.address)

    def body() -> None:
        made = world()
        (placement,) = place(made, 1)
        (agent,) = made.agents([placement])
        other_cluster.kill_all()
        made.client.expect_end(agent, "after the end of the cluster")
        (late,) = place(made, 1)
        assert "the Ray cluster has not answered for" in made.reason_of_loss(late)
        with pytest.raises(LinkError, match="the Ray cluster has not answered for"):
            place(made, 1)
        made.release(placement)
        made.release(late)
        made.expect_quick_calls()

    apart(body)
    begin = time.monotonic()
    with pytest.raises(LinkError, match=f"no Ray cluster answers at {other_cluster.address}: "):
        world()
    assert time.monotonic() - begin < 10
