"""Children that exit, are killed, or are dropped; other children of the program are unaffected."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from pto_core.worker.processes import (
    ChildExit,
    ChildPlan,
    ChildProcess,
    ChildProcesses,
    child_processes,
)
from pto_core.worker.processes.child_process import end_all


def waiting(start) -> None:
    start.ready(os.getpid())
    signal.pause()


def closing(start) -> None:
    """Exit as soon as the child is ready, as after a close request."""
    start.ready(os.getpid())


def deaf(start) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    start.ready(os.getpid())
    while True:
        signal.pause()


def plan(body, index: int = 0) -> ChildPlan:
    return ChildPlan(f"L3/sub{index}", body)


@pytest.fixture
def processes():
    made = ChildProcesses()
    yield made
    made.kill_all()


def await_asleep(pid: int) -> None:
    """Wait until the main thread of a process sleeps in several samples in a row."""
    deadline, asleep = time.monotonic() + 60, 0
    while asleep < 5 and time.monotonic() < deadline:
        time.sleep(0.001)
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        asleep = asleep + 1 if state == "S" else 0


def until_gone(processes: ChildProcesses) -> list[ChildExit]:
    deadline = time.monotonic() + 60
    while not (found := processes.poll()) and time.monotonic() < deadline:
        time.sleep(0.001)
    return found


def test_a_child_that_is_killed_is_found_once_with_its_signal(processes) -> None:
    pids = processes.start([plan(waiting, 0), plan(waiting, 1)])
    os.kill(pids[1], signal.SIGKILL)
    (found,) = until_gone(processes)
    assert found == ChildExit(1, "L3/sub1", pids[1], exit_code=None, signal=signal.SIGKILL)
    assert "SIGKILL" in found.description
    assert processes.poll() == []
    assert processes[1].pidfd == -1
    assert processes[0].pidfd >= 0


# Invariant: Exactly one thread reaps a child, and no thread signals or waits for a closed
# descriptor.
def test_many_threads_may_poll_and_signal_and_one_collects_the_exit(processes) -> None:
    """One thread collects the exit and closes the descriptor while others are about to use it."""
    for _ in range(20):
        processes.start([plan(waiting)])
        child, together = processes[0], threading.Barrier(4)

        def ask(child: ChildProcess = child, together: threading.Barrier = together) -> ChildExit:
            together.wait()
            child.kill()
            child.await_exit(10)
            return child.poll()

        with ThreadPoolExecutor(4) as pool:
            found = [each.result() for each in [pool.submit(ask) for _ in range(4)]]
        assert {ending.signal for ending in found} == {signal.SIGKILL}
        processes.end()


def test_a_child_that_exits_is_found_with_its_code(processes) -> None:
    def leave(start) -> None:
        start.ready()
        os._exit(7)

    processes.start([plan(leave)])
    (found,) = until_gone(processes)
    assert (found.exit_code, found.signal) == (7, None)
    assert found.description == "ended by itself with code 7"


def test_an_exception_after_ready_is_printed_and_the_code_is_1(processes, capfd) -> None:
    def fail(start) -> None:
        start.ready()
        raise RuntimeError("too late")

    processes.start([plan(fail)])
    (found,) = until_gone(processes)
    assert found.exit_code == 1
    assert "RuntimeError: too late" in capfd.readouterr().err


def test_ending_waits_for_those_that_close_by_themselves(processes) -> None:
    processes.start([plan(closing, 0), plan(closing, 1)])
    kept = list(processes)
    processes.end()
    assert [child.exit.exit_code for child in kept] == [0, 0]
    assert len(processes) == 0


def test_ending_requests_an_exit_and_then_kills(processes) -> None:
    processes.start([plan(waiting, 0), plan(deaf, 1)])
    kept = list(processes)
    processes.end(grace_s=0.05)
    assert [child.exit.signal for child in kept] == [signal.SIGTERM, signal.SIGKILL]
    processes.end()


def test_a_child_that_is_stopped_is_ended_too(processes) -> None:
    (pid,) = processes.start([plan(waiting)])
    os.kill(pid, signal.SIGSTOP)
    kept = processes[0]
    processes.end(grace_s=0)
    assert kept.exit.signal in (signal.SIGTERM, signal.SIGKILL)


# Invariant: A Worker waits for, signals and ends only its own children, and only in the process
# that started them.
def test_the_users_own_children_are_not_waited_for(processes) -> None:
    own = subprocess.Popen([sys.executable, "-c", "raise SystemExit(4)"])
    os.waitid(os.P_PID, own.pid, os.WEXITED | os.WNOWAIT)
    processes.start([plan(closing)])
    until_gone(processes)
    processes.end()
    assert own.wait() == 4


def test_the_error_explains_a_child_that_other_code_waited_for(processes) -> None:
    (pid,) = processes.start([plan(waiting)])
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    (found,) = until_gone(processes)
    assert (found.exit_code, found.signal) == (None, None)
    assert "other code in this process collected it" in found.description


def test_a_program_that_ignores_sigchld_loses_no_child() -> None:
    old = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        processes = ChildProcesses()
        processes.start([plan(waiting)])
        kept = processes[0]
        processes.end(grace_s=0)
    finally:
        signal.signal(signal.SIGCHLD, old)
    assert not kept.is_alive


def test_forgotten_children_are_ended(is_gone) -> None:
    processes = ChildProcesses()
    (pid,) = processes.start([plan(waiting)])
    del processes
    assert is_gone(pid)


def test_the_end_of_the_interpreter_ends_the_children(is_gone) -> None:
    program = (
        "import signal, os\n"
        "from pto_core.worker.processes import ChildPlan, ChildProcesses\n"
        "def body(start):\n"
        "    start.ready(os.getpid())\n"
        "    signal.pause()\n"
        "processes = ChildProcesses()\n"
        "print(*processes.start([ChildPlan('L3/sub0', body), ChildPlan('L3/sub1', body)]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert all(is_gone(int(pid)) for pid in done.stdout.split())
    assert done.stderr == ""


def test_a_forked_copy_ends_no_child(processes) -> None:
    """A process that the user forks inherits the list of children, and runs the exit handlers."""
    (pid,) = processes.start([plan(waiting)])
    program_pid = os.fork()
    if program_pid == 0:
        processes.kill_all()
        os._exit(0)
    os.waitpid(program_pid, 0)
    assert processes.poll() == []
    assert processes[0].pid == pid


def test_an_interrupt_while_ending_ends_the_wait_and_then_runs_its_handler(
    processes, monkeypatch
) -> None:
    processes.start([plan(deaf)])
    kept = processes[0]

    def interrupt() -> None:
        await_asleep(os.getpid())
        os.kill(os.getpid(), signal.SIGINT)

    def interrupted(*given: Any) -> None:
        thread = threading.Thread(target=interrupt)
        thread.start()
        end_all(*given)
        thread.join()  # the signal arrives during this call

    monkeypatch.setattr(child_processes, "end_all", interrupted)
    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        processes.end(grace_s=60)
    assert time.monotonic() - begun < 30
    assert kept.exit.signal == signal.SIGKILL
    assert len(processes) == 0


def test_an_interrupt_while_starting_leaves_nothing_and_then_runs_its_handler() -> None:
    def sleepy(start) -> None:
        await_asleep(os.getppid())
        os.kill(os.getppid(), signal.SIGINT)
        signal.pause()

    processes = ChildProcesses()
    with pytest.raises(KeyboardInterrupt):
        processes.start([plan(waiting, 0), plan(sleepy, 1)])
    assert len(processes) == 0
