"""Workers whose hosts are agents on the nodes of a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psutil
import pytest
from placed_hosts import holding, pids, write_pid
from remote_hosts import counted, double, on_sub, task_args, wait_until

from pto_core import Hosts, Worker
from pto_core.errors import CapacityError, ChildDiedError, ChildStartError, PtoError

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("address")]


def test_hosts_compute_join_and_leave(cluster: Any) -> None:
    hosts = Hosts.on("ray", num=2, resources={"NPU": 2})
    far = Worker(level=3, num_sub_workers=1, hosts=hosts)
    step = on_sub(far.register(double))
    with Worker(level=4, spare_workers=1) as worker:
        step, pid = worker.register(step), worker.register(write_pid)
        worker.add_worker(far)
        x = counted(worker)
        results = [counted(worker) for _ in range(2)]

        def graph(orch: Any, args: Any, config: Any) -> None:
            for child, out in enumerate(results):
                orch.submit_next_level(step, task_args(x, out), worker=child)

        worker.run(graph)
        assert all((out == x * 2).all() for out in results)
        found = pids(worker, pid, 0, 1, retries=1)
        assert {cluster.node_of(one) for one in found} == {cluster.nodes[0]}

        with pytest.raises(ChildStartError, match="NPU=8 each were requested") as info:
            worker.add_worker(Worker(level=3, hosts=Hosts.on("ray", 1, {"NPU": 8})))
        assert isinstance(info.value.__cause__, CapacityError)
        joined = worker.add_worker(Worker(level=3, hosts=Hosts.on("ray", 1, {"held": 1})))
        (third,) = pids(worker, pid, joined, retries=1)
        worker.remove_worker(joined)
        wait_until(lambda: not psutil.pid_exists(third))
    wait_until(lambda: not any(psutil.pid_exists(one) for one in found))


def test_a_start_without_resources_states_what_there_is(cluster: Any) -> None:
    far = Worker(level=3, hosts=Hosts.on("ray", num=3, resources={"NPU": 2}))
    with Worker(level=4) as worker:
        worker.add_worker(far)
        with pytest.raises(ChildStartError) as info:
            worker.init()
    assert isinstance(info.value.__cause__, CapacityError)
    assert "has resources for 0 beside the 2 hosts of this launcher" in str(info.value)
    assert f"(node {cluster.nodes[0][:8]}): CPU=1, NPU=4, " in str(info.value)


# Invariant: A host whose node is lost inside a run is replaced by one on another node.
@pytest.mark.parametrize("on_death", ["restart", "reroute"])
def test_a_node_that_is_lost_inside_a_run_is_replaced(
    on_death: str, cluster: Any, tmp_path: Path
) -> None:
    nodes = {cluster.add(**{on_death: 1}) for _ in range(2)}
    begun, go = tmp_path / "begun", tmp_path / "go"
    begun.touch()
    hosts = Hosts.on("ray", num=2, resources={on_death: 1})
    far = Worker(level=3, num_sub_workers=0, hosts=hosts, remote_lease_s=1)
    with Worker(level=4, on_worker_death=on_death) as worker:
        worker.add_worker(far)
        pid, hold = worker.register(write_pid), worker.register(holding(begun, go))
        before = pids(worker, pid, 0, 1, retries=1)
        assert {cluster.node_of(one) for one in before} == nodes
        spare = cluster.add(**{on_death: 1})
        out = worker.shared_array((1,), "int64")

        def graph(orch: Any, args: Any, config: Any) -> None:
            orch.submit_next_level(hold, task_args(out), retries=1)
            wait_until(lambda: begun.read_text())
            cluster.kill(cluster.node_of(int(begun.read_text())))
            go.touch()

        worker.run(graph)
        first, second = (int(line) for line in begun.read_text().split())
        assert out[0] == second != first
        wait_until(lambda: _both_run(worker, pid))
        after = pids(worker, pid, 0, 1, retries=1)
        assert len({*after, *before}) == 3
        assert first not in after
        assert spare in {cluster.node_of(one) for one in after}
        counts = worker.statistics()
        assert (counts["deaths"], counts["restarts"]) == (1, 1)


def _both_run(worker: Worker, pid: Any) -> bool:
    try:
        pids(worker, pid, 0, 1, retries=1)
    except ChildDiedError:
        return False
    return True


def test_a_cluster_that_goes_away_ends_the_run(
    other_cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", other_cluster.address)
    far = Worker(level=3, num_sub_workers=0, hosts=Hosts.on("ray"), remote_lease_s=1)
    with Worker(level=4, on_worker_death="restart") as worker:
        worker.add_worker(far)
        pid = worker.register(write_pid)
        (first,) = pids(worker, pid, 0, retries=1)
        other_cluster.kill_all()
        with pytest.raises(PtoError) as info:
            pids(worker, pid, 0, retries=1)
        assert "the Ray cluster has not answered for" in str(info.value)
    assert not psutil.pid_exists(first)
