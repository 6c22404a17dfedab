"""Workers whose hosts a launcher places, with agents of the launchers of the core."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from placed_hosts import agents, holding, host_of, kill_host, launchers, pids, write_pid
from remote_hosts import START_S, counted, double, is_running, on_sub, task_args, wait_until

from pto_core import Hosts, RemoteTensorRef, Worker
from pto_core.errors import (
    CapacityError,
    ChildDiedError,
    ChildStartError,
    PtoError,
    UsageError,
    WorkerClosedError,
)
from pto_transport_zmq.launchers import AgentProcess

pytestmark = pytest.mark.usefixtures("folders")

PROGRAM = """
import time
from pto_core import Hosts, Worker

worker = Worker(level=4)
worker.add_worker(Worker(level=3, hosts=Hosts.on("local", num=1)))
worker.init()
print("ready", flush=True)
time.sleep(100)
"""

# What an agent prints; nothing listens at this address.
SERVING = f"pto agent: serving at tcp://127.0.0.1:9 with the key {'a' * 40}"


# Invariant: No placed agent, launcher process or key of it survives the Worker.
def test_the_children_of_a_template_share_callables_and_a_launcher() -> None:
    far = Worker(level=3, num_sub_workers=1, hosts=Hosts.on("local", num=2, resources={"CPU": 1}))
    near = Worker(level=3, num_sub_workers=1)
    on_far, on_near = on_sub(far.register(double)), on_sub(near.register(double))
    with Worker(level=4, spare_workers=1) as worker:
        on_far, on_near, pid = (worker.register(one) for one in (on_far, on_near, write_pid))
        assert [worker.add_worker(near), worker.add_worker(far)] == [0, 1]
        x = counted(worker)
        results = [counted(worker) for _ in range(3)]

        def graph(orch: Any, args: Any, config: Any) -> None:
            for child, out in enumerate(results):
                step = on_far if child else on_near
                orch.submit_next_level(step, task_args(x, out), worker=child)

        worker.run(graph)
        assert all((out == x * 2).all() for out in results)
        assert len(agents()) == 2

        # The hosts reach each other.
        first, second = worker.remote_malloc(64, 1), worker.remote_malloc(64, 2)
        worker.remote_copy_to(first, bytes(range(64)))
        target, source = (RemoteTensorRef(one, (64,), "uint8") for one in (second, first))
        worker.remote_copy(target, source)
        found = bytearray(64)
        worker.remote_copy_from(found, second)
        assert found == bytes(range(64))

        # Hosts leave one by one, and single ones join.
        worker.remove_worker(1)
        wait_until(lambda: len(agents()) == 1)
        with pytest.raises(UsageError, match="is a child already"):
            worker.add_worker(far)
        (kept,) = launchers()
        worker.remove_worker(2)
        assert not is_running(kept)
        joined = worker.add_worker(Worker(level=3, hosts=Hosts.on("local", num=1)))
        assert pids(worker, pid, joined) != pids(worker, pid, 0)
        (last,) = launchers()
        processes = [last, *last.children(recursive=True)]
    wait_until(lambda: not any(is_running(one) for one in processes))


# Invariant: A lost host is replaced by another one, also if the launcher itself was killed. Tasks
# of the lost host run again only as `on_worker_death` and `retries` permit.
@pytest.mark.parametrize(("on_death", "is_frozen"), [("restart", True), ("reroute", False)])
def test_a_host_that_is_lost_inside_a_run_is_replaced(
    on_death: str, is_frozen: bool, tmp_path: Path
) -> None:
    lost: list[psutil.Process] = []
    begun, go = tmp_path / "begun", tmp_path / "go"
    begun.touch()
    hosts = Hosts.on("local", num=2)
    far = Worker(level=3, num_sub_workers=0, hosts=hosts, remote_lease_s=0.5)
    with Worker(level=4, on_worker_death=on_death) as worker:
        worker.add_worker(far)
        pid, hold = worker.register(write_pid), worker.register(holding(begun, go))
        before = pids(worker, pid, 0, 1)
        out = worker.shared_array((1,), "int64")

        def graph(orch: Any, args: Any, config: Any) -> None:
            orch.submit_next_level(hold, task_args(out), retries=1)
            wait_until(lambda: begun.read_text())
            lost.extend(host_of(int(begun.read_text())))
            for process in lost if is_frozen else ():
                process.suspend()
            if not is_frozen:
                kill_host(int(begun.read_text()))
            go.touch()

        worker.run(graph)
        first, second = (int(line) for line in begun.read_text().split())
        assert out[0] == second != first
        if on_death == "reroute":
            with pytest.raises(ChildDiedError):
                pids(worker, pid, 0, 1)
            wait_until(lambda: _joined(worker, pid))
        after = pids(worker, pid, 0, 1)
        assert len({*after, *before}) == 3
        assert not {one.pid for one in lost} & set(after)
        wait_until(lambda: not any(is_running(one) for one in lost))
        assert len(agents()) == 2
        counts = worker.statistics()
        assert (counts["deaths"], counts["restarts"]) == (1, 1)


def _joined(worker: Worker, pid: Any) -> bool:
    try:
        pids(worker, pid, 0, 1)
    except ChildDiedError:
        time.sleep(0.06)  # the Worker checks its children at most every 50 ms
        return False
    return True


def test_hosts_are_replaced_after_the_launcher_was_killed() -> None:
    far = Worker(level=3, num_sub_workers=0, hosts=Hosts.on("local", num=2), remote_lease_s=0.5)
    with Worker(level=4, on_worker_death="restart") as worker:
        worker.add_worker(far)
        pid = worker.register(write_pid)
        before = pids(worker, pid, 0, 1)
        (launcher,) = launchers()
        old = agents()
        launcher.kill()
        wait_until(lambda: not any(is_running(one) for one in old))
        after = pids(worker, pid, 0, 1, retries=1)
        assert not set(before) & set(after)
        assert len(agents()) == 2


def test_a_host_that_is_down_is_not_the_last_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", os.path.dirname(sys.executable), prepend=os.pathsep)
    far = Worker(
        level=3,
        hosts=Hosts.on("command"),
        host_list="a@127.0.0.1, b@127.0.0.1, c@127.0.0.1",
        host_command="sh -c 'test {host} != b@127.0.0.1 && exec {command}'",
        remote_lease_s=0.5,
    )
    with Worker(level=4, on_worker_death="restart") as worker:
        worker.add_worker(far)
        pid = worker.register(write_pid)
        (first,) = pids(worker, pid, 0)
        kill_host(first)
        (second,) = pids(worker, pid, 0, retries=1)
        assert second != first
        counts = worker.statistics()
        assert (counts["deaths"], counts["restarts"]) == (1, 1)


# Invariant: A start whose hosts cannot be placed fails with the reason, and leaves nothing.
@pytest.mark.parametrize(
    ("command", "num", "cause", "message"),
    [
        (
            "sh -c 'echo no such host; exit 3' {command}",
            1,
            ChildStartError,
            r"L4/host0: the launcher 'command' has no host for it: the agent on h1 has ended: .*"
            r"exit code 3; its last output: no such host",
        ),
        (
            f"sh -c 'echo {SERVING}; sleep 1; : {{command}}'",
            1,
            ChildStartError,
            r"L4/host0: the launcher 'command' has no host for it: the agent on h1 has ended: its "
            r"command ended with exit code 0, as at the end of its standard input",
        ),
        (
            "sh -c cat {command}",
            2,
            CapacityError,
            r"host_list has too few hosts: 1 wanted; free: none; in use: h1; add",
        ),
        (
            "sh -c cat {command}",
            1,
            None,
            r"has placed no host after 6 s: the agent h1 has not printed its address",
        ),
        ("sh -c cat", 1, UsageError, r"expected a command line in which {command} stands"),
    ],
)
def test_a_start_without_hosts_fails(
    command: str, num: int, cause: type[PtoError] | None, message: str
) -> None:
    far = Worker(
        level=3,
        hosts=Hosts.on("command", num=num),
        host_list="h1",
        host_command=command,
        child_start_timeout_s=6 if cause is None else START_S,
    )
    with Worker(level=4) as worker:
        worker.add_worker(far)
        with pytest.raises(ChildStartError, match=message) as info:
            worker.init()
        assert cause is None or isinstance(info.value.__cause__, cause)
        assert not launchers()


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_start_ends_with_its_worker_and_its_launcher(is_killed: bool) -> None:
    far = Worker(
        level=3, hosts=Hosts.on("command"), host_list="h1", host_command="sh -c cat {command}"
    )
    worker = Worker(level=4)
    worker.add_worker(far)
    errors: list[PtoError] = []

    def start() -> None:
        try:
            worker.init()
        except PtoError as error:
            errors.append(error)

    thread = threading.Thread(target=start)
    thread.start()
    wait_until(launchers)
    if is_killed:
        launchers()[0].kill()
        thread.join()
    worker.close()
    thread.join()
    assert [type(error) for error in errors] == [
        ChildStartError if is_killed else WorkerClosedError
    ]
    assert not is_killed or "the process of the launcher has ended with exit code -9" in str(errors)
    assert not launchers()


def test_agents_and_keys_end_with_a_killed_program(folders: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True)
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        (launcher,) = launchers(psutil.Process(process.pid))
        left = [launcher, *launcher.children(recursive=True)]
        assert list(folders.glob("pto-launcher-*/1/client.secret"))
        process.kill()
    wait_until(lambda: not any(is_running(one) for one in left), START_S)


def test_the_end_of_the_input_reaches_an_agent_beside_forked_children() -> None:
    process = AgentProcess(["sh", "-c", "cat > /dev/null; exit 5"], "host1")
    with Worker(level=3, num_sub_workers=1) as worker:
        worker.init()  # forks a child, which must not hold the input open
        process.end()
        wait_until(process.exit_reason)
        assert "exit code 5" in str(process.exit_reason())
    assert process.is_over()
