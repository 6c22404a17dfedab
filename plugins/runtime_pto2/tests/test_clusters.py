"""Test clusters that are freed while tasks run: a release never waits, an allocation may."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from pto_core import kernel, open_device

PATIENCE_S = 60


@kernel(core="aiv")
def nothing():
    pass


def test_freeing_a_cluster_does_not_wait_for_its_tasks() -> None:
    started, may_end = threading.Event(), threading.Event()
    happened: list[str] = []

    @kernel(core="aiv")
    def hold():
        started.set()
        assert may_end.wait(PATIENCE_S)
        happened.append("the task has ended")

    def graph(rt: Any) -> None:
        cluster = rt.allocate_cluster()
        rt.submit(hold, cluster=cluster)
        with rt.scope():
            pass
        assert started.wait(PATIENCE_S)
        rt.free_cluster(cluster)
        happened.append("it was freed")
        may_end.set()
        assert rt.allocate_cluster() == cluster
        happened.append("it was allocated again")

    with open_device("a2a3sim", runtime="pto2", block_dim=1) as device:
        report = device.run(graph, timeout_s=2 * PATIENCE_S)
    assert happened == ["it was freed", "the task has ended", "it was allocated again"]
    assert report.statistics["clusters_peak"] == 1


@pytest.mark.parametrize("mode", ["threads", "deterministic"])
def test_the_end_of_a_scope_frees_what_it_allocated(mode: str) -> None:
    def graph(rt: Any) -> None:
        for _ in range(30):
            with rt.scope():
                rt.submit(nothing, cluster=rt.allocate_cluster())

    settings = {"sim.mode": mode}
    with open_device("a2a3sim", runtime="pto2", block_dim=1, settings=settings) as device:
        report = device.run(graph)
    assert report.tasks == 30
    assert report.statistics["clusters_allocated"] == 30
