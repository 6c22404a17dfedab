"""Placed hosts that are lost: two at once, during a start, and with each ``on_worker_death``."""

from __future__ import annotations

import importlib
import os
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from placed_hosts import agents, holding, host_of, kill_host, pids, write_pid
from remote_hosts import is_running, task_args, wait_until

from pto_core import Hosts, Worker
from pto_core.errors import ChildDiedError

pytestmark = pytest.mark.usefixtures("folders")

REASON = r"L4/host0: .*; the agent on .* has ended: its command ended with signal SIGKILL"
SLOW = """
import os
import time
from pathlib import Path

folder = Path(os.environ["PTO_TEST_FOLDER"])
(folder / f"importing-{os.getpid()}").touch()
while not (folder / "go").exists():
    time.sleep(0.01)


def write_pid(orch, args, config):
    args.tensor(0)[:] = os.getpid()
"""


def template(num: int) -> Worker:
    return Worker(level=3, num_sub_workers=0, hosts=Hosts.on("local", num=num), remote_lease_s=0.5)


def assert_new_host_at_first_attempt(capfd: pytest.CaptureFixture[str]) -> None:
    """Fail if a child tried to return to the host that was lost."""
    found = capfd.readouterr().err
    assert "not restarted" not in found
    assert "lost during its start" not in found


def test_two_hosts_that_are_lost_at_once_are_replaced(capfd: pytest.CaptureFixture[str]) -> None:
    with Worker(level=4, on_worker_death="restart") as worker:
        worker.add_worker(template(3))
        pid = worker.register(write_pid)
        before = pids(worker, pid, 0, 1, 2)
        lost = [*host_of(before[0]), *host_of(before[2])]
        for process in lost:
            process.suspend()  # so that the second one is not lost later
        for process in lost:
            process.kill()
        after = pids(worker, pid, 0, 1, 2, retries=1)
        assert after[1] == before[1]
        assert len({*before, *after}) == 5
        counts = worker.statistics()
        assert (counts["deaths"], counts["restarts"], counts["placing"]) == (2, 2, 0)
        assert len(agents()) == 3
    assert_new_host_at_first_attempt(capfd)


# Invariant: The error of a lost host has the reason of its launcher. With `fail`, tasks on the host
# fail, and pinned tasks that were not sent run on its replacement in the same run.
def test_a_lost_host_is_replaced_in_its_run_with_fail(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    begun, go = tmp_path / "begun", tmp_path / "go"
    begun.touch()
    with Worker(level=4, on_worker_death="fail") as worker:
        worker.add_worker(template(2))
        pid, hold = worker.register(write_pid), worker.register(holding(begun, go))
        before = pids(worker, pid, 0, 1)
        out = worker.shared_array((2, 1), "int64")

        def graph(orch: Any, args: Any, config: Any) -> None:
            task = orch.submit_next_level(hold, task_args(out[0]), worker=0)
            wait_until(begun.read_text)
            kill_host(before[0])
            with pytest.raises(ChildDiedError, match=REASON):
                task.result()
            orch.submit_next_level(pid, task_args(out[1]), worker=0)

        worker.run(graph)  # the failure is handled
        assert out[1] not in (0, *before)
        assert pids(worker, pid, 0, 1) == [out[1], before[1]]
        counts = worker.statistics()
        assert (counts["deaths"], counts["restarts"]) == (1, 1)
    assert_new_host_at_first_attempt(capfd)


# Invariant: With `reroute`, a lost host is placed again at once, but its child starts with the next
# run.
def test_reroute_defers_the_start_on_a_new_host_to_the_next_run() -> None:
    with Worker(level=4, on_worker_death="reroute") as worker:
        worker.add_worker(template(2))
        pid = worker.register(write_pid)
        before = pids(worker, pid, 0, 1)
        out = worker.shared_array((1,), "int64")

        def graph(orch: Any, args: Any, config: Any) -> None:
            def run_task() -> None:
                orch.submit_next_level(pid, task_args(out), worker=1).result()

            def is_placed() -> bool:
                run_task()  # the Worker checks its children while it waits
                return worker.statistics()["deaths"] == 1 and len(agents()) == 2

            kill_host(before[0])
            wait_until(is_placed)
            wait_until(lambda: run_task() or worker.statistics()["placing"] == 0)
            end = time.monotonic() + 0.5  # ten times as long as between two checks of children
            while time.monotonic() < end:
                run_task()
            children = [one for one in psutil.Process().children() if is_running(one)]
            assert len(children) == 2, "not only the launcher and the relay of the other host"
            assert worker.statistics()["restarts"] == 0

        worker.run(graph)

        def has_joined() -> bool:
            pids(worker, pid, 1)
            return bool(worker.statistics()["restarts"] == 1)

        wait_until(has_joined)
        after = pids(worker, pid, 0, 1)
        assert after[1] == before[1]
        assert after[0] != before[0]


# Invariant: A host that is lost while its child starts is replaced, too.
def test_a_host_that_is_lost_during_the_start_of_its_child_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "slow_start.py").write_text(SLOW)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    monkeypatch.setenv("PTO_TEST_FOLDER", str(tmp_path))
    go = tmp_path / "go"
    go.touch()
    step = importlib.import_module("slow_start").write_pid
    with Worker(level=4, on_worker_death="restart") as worker:
        worker.add_worker(template(1))
        pid = worker.register(step)
        (before,) = pids(worker, pid, 0)
        go.unlink()
        started = set(tmp_path.glob("importing-*"))
        out = worker.shared_array((1,), "int64")

        def graph(orch: Any, args: Any, config: Any) -> None:
            old = host_of(before)
            kill_host(before)
            task = orch.submit_next_level(pid, task_args(out), worker=0, retries=1)
            wait_until(lambda: set(tmp_path.glob("importing-*")) - started)
            (importing,) = set(tmp_path.glob("importing-*")) - started
            kill_host(int(importing.name.partition("-")[2]))
            go.touch()
            task.result()
            assert not any(is_running(one) for one in old)

        worker.run(graph)
        assert out[0] != before
        counts = worker.statistics()
        assert (counts["deaths"], counts["restarts"]) == (1, 1)
    sys.modules.pop("slow_start")
