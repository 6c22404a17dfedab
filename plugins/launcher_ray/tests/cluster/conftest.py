"""A Ray cluster for the tests of this folder: one head and nodes, each with its own raylet."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

PROGRAM = Path(__file__).with_name("cluster_program.py")


def pytest_ignore_collect() -> bool | None:
    """Without Ray, collect nothing: `pytest -m ray` then fails, because it finds no test."""
    return True if importlib.util.find_spec("ray") is None else None


class RayCluster:
    """A cluster that another process runs: this process never connects to Ray."""

    def __init__(self, folder: str) -> None:
        environment = {**os.environ, "RAY_TMPDIR": folder}
        self._process = subprocess.Popen(
            [sys.executable, str(PROGRAM)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        self.address: str = self._answer()
        self.nodes: tuple[str, ...] = ()

    def add(self, **resources: float) -> str:
        """Start a node with custom resources, and return its id."""
        return str(self._ask({"add": resources}))

    def node_of(self, pid: int) -> str:
        """Return the id of the node on which a process runs."""
        return str(self._ask({"find": pid}))

    def kill(self, node: str) -> None:
        """Kill all processes of a node, as if its machine had lost power."""
        self._ask({"kill": node})

    def kill_all(self) -> None:
        """Kill all processes of the cluster."""
        self._ask({"kill_all": True})

    def close(self) -> None:
        """Stop the cluster."""
        self._process.communicate()

    def _ask(self, order: dict[str, Any]) -> Any:
        assert self._process.stdin is not None
        print(json.dumps(order), file=self._process.stdin, flush=True)
        return self._answer()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())


@contextmanager
def running_cluster() -> Iterator[RayCluster]:
    """Run a cluster that has only a head."""
    folder = tempfile.mkdtemp(prefix="pto-ray-", dir="/tmp")  # Ray needs a short path
    try:
        cluster = RayCluster(folder)
        try:
            yield cluster
        finally:
            cluster.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)  # the cluster has removed it, if it started


@pytest.fixture
def start_cluster() -> Any:
    """Return the context manager that runs a cluster with the environment of this process."""
    return running_cluster


@pytest.fixture(scope="session")
def cluster() -> Iterator[RayCluster]:
    """Return the cluster of this session, with two nodes beside the head."""
    with running_cluster() as made:
        made.nodes = (made.add(NPU=4, pair=2, few=3, held=1, kept=1), made.add(pair=2))
        yield made


@pytest.fixture
def address(cluster: RayCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the launcher find the cluster."""
    monkeypatch.setenv("RAY_ADDRESS", cluster.address)


@pytest.fixture
def other_cluster() -> Iterator[RayCluster]:
    """Return a cluster that the test may kill."""
    with running_cluster() as made:
        yield made
