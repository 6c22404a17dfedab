"""Templates of several hosts that join and leave a running Worker."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from placed_hosts import agents, holding, launchers, pids, write_pid
from remote_hosts import counted, double, is_running, on_sub, task_args, wait_until

from pto_core import Hosts, Worker
from pto_core.errors import CapacityError, ChildStartError, UsageError

pytestmark = pytest.mark.usefixtures("folders")


# Invariant: A template joins a running Worker as a whole: with a child and an agent for each host,
# at successive places.
def test_a_template_joins_between_runs_and_inside_a_run_and_leaves() -> None:
    far = Worker(level=3, num_sub_workers=1, hosts=Hosts.on("local", num=3))
    step = on_sub(far.register(double))
    with Worker(level=4, spare_workers=3).init() as worker:
        pid, step = worker.register(write_pid), worker.register(step)
        assert worker.add_worker(far) == 0
        assert len({*pids(worker, pid, 0, 1, 2)}) == 3
        assert len(agents()) == 3
        with pytest.raises(UsageError, match="is a child already"):
            worker.add_worker(far)

        worker.remove_worker(1)
        wait_until(lambda: len(agents()) == 2)
        wide = Worker(level=3, num_sub_workers=0, hosts=Hosts.on("local", num=2))
        with pytest.raises(CapacityError, match=r"has 3 places .* no 2 successive ones are free"):
            worker.add_worker(wide)
        worker.remove_worker(2)
        assert worker.add_worker(wide) == 1
        assert len({*pids(worker, pid, 0, 1, 2)}) == 3
        old = [one for launcher in launchers() for one in launcher.children(recursive=True)]
        for child in range(3):
            worker.remove_worker(child)
        assert not launchers()
        wait_until(lambda: not any(is_running(one) for one in old))

        x = counted(worker)
        results = [counted(worker) for _ in range(3)]

        def graph(orch: Any, args: Any, config: Any) -> None:
            assert worker.add_worker(far) == 0
            for child, out in enumerate(results):
                orch.submit_next_level(step, task_args(x, out), worker=child)

        worker.run(graph)
        assert all((out == x * 2).all() for out in results)
        processes = [one for launcher in launchers() for one in launcher.children(recursive=True)]
    wait_until(lambda: not any(is_running(one) for one in processes))


# Invariant: If one host of a template cannot join, none does, also if tasks ran on another one.
def test_a_template_that_cannot_start_on_one_host_leaves_with_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", os.path.dirname(sys.executable), prepend=os.pathsep)
    begun, joined, fail, go = (tmp_path / name for name in ("begun", "joined", "fail", "go"))
    command = (
        "sh -c 'test {host} = a@127.0.0.1 && exec {command};"
        f" while ! test -e {fail}; do sleep 0.02; done; echo no host; exit 3'"
    )
    wide = Worker(
        level=3,
        num_sub_workers=0,
        hosts=Hosts.on("command", num=2),
        host_list="a@127.0.0.1,b@127.0.0.1",
        host_command=command,
    )
    errors: list[BaseException] = []

    def join() -> None:
        try:
            worker.add_worker(wide)
        except ChildStartError as error:
            errors.append(error)
        go.touch()

    near = Worker(level=3, num_sub_workers=0, hosts=Hosts.on("local", num=1))
    reroute = {"on_worker_death": "reroute", "child_window": 1}
    with Worker(level=4, spare_workers=2, **reroute) as worker:
        worker.add_worker(near)
        worker.init()
        first, second = (worker.register(holding(file, go)) for file in (begun, joined))
        pid = worker.register(write_pid)
        out = worker.shared_array((2, 1), "int64")

        def graph(orch: Any, args: Any, config: Any) -> None:
            orch.submit_next_level(first, task_args(out[0]), worker=0)
            orch.submit_next_level(second, task_args(out[1]), retries=1)
            thread = threading.Thread(target=join)
            thread.start()
            wait_until(lambda: joined.exists() or errors)  # a host of the template runs a task
            fail.touch()
            thread.join()

        worker.run(graph)
        assert "L4/host2" in str(errors)
        assert "no host" in str(errors)
        assert len(launchers()) == 1
        with pytest.raises(UsageError, match=r"pass one of \[0\]"):
            worker.remove_worker(1)
        other = Worker(level=3, num_sub_workers=0, hosts=Hosts.on("local", num=2))
        assert worker.add_worker(other) == 1
        assert len({*pids(worker, pid, 0, 1, 2)}) == 3
