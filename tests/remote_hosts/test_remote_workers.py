"""A Worker on another host behaves like any other child: results, order, failures, and exit."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from remote_hosts import (
    Agent,
    add,
    counted,
    double,
    is_running,
    on_sub,
    running_agent,
    task_args,
    wait_until,
)

from pto_core import ChipCallable, DataType, Out, TensorArgType, Worker
from pto_core.config import load_core
from pto_core.errors import (
    ChildDiedError,
    ChildStartError,
    TaskFailedError,
    UsageError,
)
from pto_transport_zmq.link.loading import load_links
from pto_transport_zmq.remote.keys import new_keys

INPUT, OUTPUT, INOUT = TensorArgType.INPUT, TensorArgType.OUTPUT, TensorArgType.INOUT


def test_local_and_remote_children_work_on_the_same_arrays(agent: Agent) -> None:
    remote, local = agent.worker(), Worker(level=3, num_sub_workers=1)
    far, near = on_sub(remote.register(double)), on_sub(local.register(double))
    far_sum = on_sub(remote.register(add))
    with Worker(level=4) as worker:
        far, near, far_sum = map(worker.register, (far, near, far_sum))
        there, here = worker.add_worker(remote), worker.add_worker(local)
        x, y = counted(worker, 1 << 19), counted(worker, 1 << 19)

        def graph(orch: Any, args: Any, config: Any) -> None:
            middle = orch.alloc(x.shape, DataType.FLOAT32)
            orch.submit_next_level(far, task_args(x, middle, out=OUTPUT), worker=there)
            last = orch.alloc(x.shape, DataType.FLOAT32)
            orch.submit_next_level(near, task_args(middle, last, out=OUTPUT), worker=here)
            orch.submit_next_level(far_sum, task_args(middle, last, y), worker=there)

        for factor in (1, 3):
            x[:] = np.arange(len(x)) * factor  # the program writes between two runs
            worker.run(graph)
            assert np.array_equal(y, 6 * x)


def test_a_chain_on_one_host_and_its_replay(agent: Agent) -> None:
    remote = agent.worker()
    step = on_sub(remote.register(double))
    with Worker(level=4) as worker:
        step, there = worker.register(step), worker.add_worker(remote)
        x, y = counted(worker), counted(worker)

        def graph(orch: Any, args: Any, config: Any) -> None:
            last = x
            for _ in range(10):
                following = orch.alloc(x.shape, DataType.FLOAT32)
                orch.submit_next_level(step, task_args(last, following, out=OUTPUT), worker=there)
                last = following
            orch.submit_next_level(step, task_args(last, y), worker=there)

        worker.run(graph)
        assert np.array_equal(y, x * 2**11)
        captured = worker.capture(graph)
        x[:] = 1
        worker.replay(captured)
        assert (y == 2**11).all()


def test_an_exception_is_rebuilt_and_names_the_remote_child(agent: Agent) -> None:
    def fail(args: Any) -> None:
        raise ValueError("no luck today")

    remote = agent.worker()
    step = on_sub(remote.register(fail))
    with Worker(level=4) as worker:
        step, there = worker.register(step), worker.add_worker(remote)
        y = counted(worker)
        with pytest.raises(TaskFailedError, match=r"L4/host0/sub[01]: ValueError: no luck") as info:
            worker.run(lambda o, a, c: o.submit_next_level(step, task_args(y), worker=there))
        cause = info.value.__cause__
        assert isinstance(cause, TaskFailedError)
        assert isinstance(info.value, ValueError)
        assert isinstance(cause.__cause__, ValueError)
        assert (y == np.arange(1024)).all()
        worker.run(lambda o, a, c: None)


def test_printed_text_appears_at_the_parent(
    agent: Agent, capfd: pytest.CaptureFixture[str]
) -> None:
    def say(args: Any) -> None:
        print("hello ", end="", flush=True)
        print("on another stream", file=sys.stderr, flush=True)
        print("from afar", flush=True)

    remote = agent.worker()
    step = on_sub(remote.register(say))
    with Worker(level=4) as worker:
        step, there = worker.register(step), worker.add_worker(remote)
        y = counted(worker)
        worker.run(lambda o, a, c: o.submit_next_level(step, task_args(y), worker=there))
        text = ""

        def has_arrived() -> bool:
            nonlocal text
            text += capfd.readouterr().err
            lines = ("hello from afar", "on another stream")
            return all(f"[L4/host0] {line}\n" in text for line in lines)

        wait_until(has_arrived)


def test_a_stream_that_is_not_read_does_not_stop_a_remote_child(agent: Agent) -> None:
    def say(args: Any) -> None:
        for _ in range(1 << 12):
            print("x" * 63)

    read_end, write_end = os.pipe()
    saved = os.dup(2)
    os.dup2(write_end, 2)
    try:
        remote = agent.worker()
        steps = [on_sub(remote.register(say)), on_sub(remote.register(double))]
        with Worker(level=4) as worker:
            say_step, double_step = (worker.register(step) for step in steps)
            there = worker.add_worker(remote)
            x, y = counted(worker), counted(worker)
            worker.run(lambda o, a, c: o.submit_next_level(say_step, task_args(x, y), worker=there))
            time.sleep(1.0)  # time for the text to arrive
            worker.run(
                lambda o, a, c: o.submit_next_level(double_step, task_args(x, y), worker=there)
            )
            assert (y == 2 * x).all()
            # the pipe was nearly full, so the relay could not write all text
            assert len(os.read(read_end, 1 << 16)) > 1 << 15
    finally:
        os.dup2(saved, 2)
        for descriptor in (saved, read_end, write_end):
            os.close(descriptor)


def test_the_last_text_of_a_killed_worker_appears_at_the_parent(
    agent: Agent, capfd: pytest.CaptureFixture[str]
) -> None:
    def exit_with_words(orch: Any, args: Any, config: Any) -> None:
        os.write(2, b"last words")
        os.kill(os.getpid(), signal.SIGKILL)

    with Worker(level=4) as worker:
        step = worker.register(exit_with_words)
        worker.add_worker(agent.worker(num_sub_workers=0))
        with pytest.raises(ChildDiedError):
            worker.run(lambda o, a, c: o.submit_next_level(step, worker=0))
        assert "[L4/host0] last words\n" in capfd.readouterr().err


def kill_in_task(agent: Agent, victim: str, **settings: Any) -> tuple[Worker, Any]:
    """Start a Worker whose remote task kills a process of its session once."""
    # The gateway reports the exit of its Worker, and the agent reports the exit of a gateway.
    remote = agent.worker(num_sub_workers=1, remote_lease_s=300)

    def kill(orch: Any, args: Any, config: Any) -> None:
        y = args.tensor(0)
        if y[0] == 0:
            y[0] = 1  # this write does not reach home memory, because the task does not succeed
            os.kill(os.getpid() if victim == "worker" else os.getppid(), signal.SIGKILL)
        signal.pause()

    def fine(orch: Any, args: Any, config: Any) -> None:
        args.tensor(0)[:] = 5

    worker = Worker(level=4, **settings)
    steps = [worker.register(kill), worker.register(fine)]
    worker.add_worker(remote)
    return worker, steps


@pytest.mark.parametrize("victim", ["worker", "gateway"])
def test_a_killed_process_of_a_session_fails_its_task_and_is_replaced(
    agent: Agent, victim: str
) -> None:
    worker, (kill, fine) = kill_in_task(agent, victim)
    with worker:
        y = counted(worker)
        worker.init()
        old = agent.processes()
        with pytest.raises(ChildDiedError, match=r"^L4/host0: (?!L4/host0)") as info:
            worker.run(lambda o, a, c: o.submit_next_level(kill, task_args(y), worker=0))
        if victim == "worker":
            assert "SIGKILL" in str(info.value)
        assert not any(is_running(one) for one in old)
        assert y[0] == 0
        worker.run(lambda o, a, c: o.submit_next_level(fine, task_args(y), worker=0))
        assert (y == 5).all()


def test_a_restart_waits_for_an_agent_that_is_away(keys: Path, tmp_path: Path) -> None:
    def fill(orch: Any, args: Any, config: Any) -> None:
        args.tensor(0)[:] = 5

    with Worker(level=4) as worker, ExitStack() as agents:
        step = worker.register(fill)
        first = running_agent(tmp_path, "zmq", keys, may_die=True)
        with first as agent:
            worker.add_worker(agent.worker(num_sub_workers=0))
            y = counted(worker)
            worker.init()
            agent.process.kill()

        def run_once() -> None:
            worker.run(lambda o, a, c: o.submit_next_level(step, task_args(y), worker=0))

        def run_until_lost() -> None:  # the session may run tasks until it sees the loss
            while True:
                run_once()

        def start_again() -> None:
            time.sleep(7)  # longer than a first start of a child would wait for the agent
            agents.enter_context(running_agent(tmp_path, "zmq", keys, "--bind", agent.address))

        starting = threading.Thread(target=start_again)
        starting.start()
        with pytest.raises(ChildDiedError):
            run_until_lost()
        run_once()
        starting.join()
        assert (y == 5).all()


def test_a_killed_relay_is_replaced_after_its_session_has_ended(agent: Agent) -> None:
    remote = agent.worker(num_sub_workers=1)

    def wait(orch: Any, args: Any, config: Any) -> None:
        signal.pause()

    def fine(orch: Any, args: Any, config: Any) -> None:
        args.tensor(0)[:] = 5

    with Worker(level=4) as worker:
        wait, fine = worker.register(wait), worker.register(fine)
        worker.add_worker(remote)
        y = counted(worker)
        worker.init()
        (relay,) = [one for one in psutil.Process().children() if one.pid != agent.process.pid]
        old = agent.processes()

        def graph(orch: Any, args: Any, config: Any) -> None:
            orch.submit_next_level(wait, task_args(y), worker=0)
            relay.kill()

        with pytest.raises(ChildDiedError, match="L4/host0"):
            worker.run(graph)
        assert not any(is_running(one) for one in old)
        worker.run(lambda o, a, c: o.submit_next_level(fine, task_args(y), worker=0))
        assert (y == 5).all()


def test_tasks_of_a_lost_host_run_on_another_one(agent: Agent) -> None:
    remote, local = agent.worker(num_sub_workers=1), Worker(level=3, num_sub_workers=1)

    def fragile(orch: Any, args: Any, config: Any) -> None:
        y = args.tensor(0)
        if os.getpid() != int(y[1]) and y[2] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        y[0] = 9

    with Worker(level=4, on_worker_death="reroute") as worker:
        step = worker.register(fragile)
        worker.add_worker(remote)
        worker.add_worker(local)
        y = counted(worker, 4)
        worker.init()
        y[:] = 0

        def graph(orch: Any, args: Any, config: Any) -> None:
            orch.submit_next_level(step, task_args(y, out=INOUT), retries=5)

        with pytest.raises(ChildDiedError):
            worker.run(graph)  # the task kills every child that runs it
        assert (y == 0).all()


def test_a_program_that_is_killed_leaves_nothing_on_the_host(agent: Agent) -> None:
    remote = agent.worker()
    pid = os.fork()
    if pid == 0:
        worker = Worker(level=4)
        worker.add_worker(remote)
        worker.init()
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)
    agent.await_no_session()


def test_another_link_without_keys_works_in_the_same_way(open_agent: Agent) -> None:
    remote = open_agent.worker(num_sub_workers=1)
    step = on_sub(remote.register(double))
    with Worker(level=4) as worker:
        step, there = worker.register(step), worker.add_worker(remote)
        x, y = counted(worker, 1 << 19), counted(worker, 1 << 19)
        worker.run(lambda o, a, c: o.submit_next_level(step, task_args(x, y), worker=there))
        assert np.array_equal(y, 2 * x)


def test_a_client_with_other_keys_is_refused(agent: Agent, tmp_path: Path) -> None:
    new_keys(tmp_path / "other", load_links("zmq"))
    remote = Worker(level=3, num_sub_workers=1, host=agent.address, keys=tmp_path / "other")
    with Worker(level=4) as worker:
        worker.add_worker(remote)
        with pytest.raises(ChildStartError, match="the address, the keys and the firewall"):
            worker.init()
    assert agent.processes() == []


def test_a_client_without_keys_is_refused(agent: Agent) -> None:
    remote = Worker(level=3, num_sub_workers=1, host=agent.address)
    with Worker(level=4) as worker:
        worker.add_worker(remote)
        with pytest.raises(ChildStartError, match="the address, the keys and the firewall"):
            worker.init()
    assert agent.processes() == []


def test_a_host_without_an_agent_is_an_error_that_names_it() -> None:
    remote = Worker(level=3, num_sub_workers=1, host="tcp://127.0.0.1:9")
    with Worker(level=4) as worker:
        worker.add_worker(remote)
        with pytest.raises(ChildStartError, match=r"tcp://127\.0\.0\.1:9 did not answer"):
            worker.init()


def test_an_error_of_the_start_on_the_host_is_raised_here(agent: Agent) -> None:
    remote = agent.worker(device_ids=[0], platform="no_such_platform")
    with Worker(level=4) as worker:
        worker.add_worker(remote)
        with pytest.raises(ChildStartError, match="no_such_platform"):
            worker.init()


def test_a_function_that_captures_a_shared_array_is_refused(agent: Agent) -> None:
    with Worker(level=4) as worker:
        x = counted(worker)

        def graph(orch: Any, args: Any, config: Any) -> None:
            x[:] = 1

        worker.register(graph)
        worker.add_worker(agent.worker())
        with pytest.raises(UsageError, match="graph cannot be serialised: it uses a shared array"):
            worker.init()


def test_a_remote_worker_is_started_by_its_parent_only(agent: Agent) -> None:
    remote = agent.worker()
    with pytest.raises(UsageError, match="add_worker"):
        remote.init()


def test_arguments_that_cannot_be_sent_are_refused() -> None:
    with pytest.raises(UsageError, match="keys was passed without host"):
        Worker(level=3, keys="./keys")
    with pytest.raises(UsageError, match="policy of a remote Worker"):
        Worker(level=3, host="tcp://h:1", policy=lambda *given: 0)


@pytest.mark.parametrize("victim", ["main", "server"])
def test_a_killed_agent_ends_its_sessions(keys: Path, tmp_path: Path, victim: str) -> None:
    def wait(orch: Any, args: Any, config: Any) -> None:
        signal.pause()

    with running_agent(tmp_path, "zmq", keys, may_die=True) as agent, Worker(level=4) as worker:
        step = worker.register(wait)
        worker.add_worker(agent.worker(num_sub_workers=1))
        y = counted(worker)
        worker.init()
        main = psutil.Process(agent.process.pid)
        all_of_them = [main, *main.children(recursive=True)]
        killed = main if victim == "main" else agent.server()

        def graph(orch: Any, args: Any, config: Any) -> None:
            orch.submit_next_level(step, task_args(y), worker=0)
            killed.kill()

        with pytest.raises(ChildDiedError, match="L4/host0"):
            worker.run(graph)
        wait_until(lambda: not any(is_running(one) for one in all_of_them))


def test_an_orchestration_of_the_main_program_travels_by_code(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fill(rt: Any, out: Out) -> None:
        pass

    remote = agent.worker(
        num_sub_workers=0,
        device_ids=[0],
        platform="a2a3sim",
        runtime="tensormap_and_ringbuffer",
    )
    fill.__module__, fill.__qualname__ = "__main__", "main_of_the_parent"
    monkeypatch.setattr(sys.modules["__main__"], "main_of_the_parent", fill, raising=False)
    with Worker(level=4) as worker:
        remote.register(ChipCallable(fill))
        worker.add_worker(remote)
        worker.init()


def test_settings_that_a_worker_below_a_remote_one_cannot_have_are_refused(agent: Agent) -> None:
    def init_with(**settings: Any) -> None:
        remote = agent.worker(level=4, num_sub_workers=0)
        remote.add_worker(Worker(level=3, num_sub_workers=1, **settings))
        with Worker(level=5) as worker:
            worker.add_worker(remote)
            worker.init()

    with pytest.raises(UsageError, match="for the host tcp://h:1 is below a Worker on another"):
        init_with(host="tcp://h:1")
    with pytest.raises(UsageError, match="policy that is a function"):
        init_with(policy=lambda *given: 0)
    with pytest.raises(UsageError, match="has a config, which cannot be sent"):
        init_with(config=load_core({"child_window": 2}))
