"""Children start together, or not at all; each failure names its child."""

from __future__ import annotations

import faulthandler
import os
import resource
import signal
import subprocess
import sys
import threading
import time

import pytest

from pto_core.errors import CapacityError, ChildStartError
from pto_core.worker.processes import ChildPlan, ChildProcesses, register_parkable


def waiting(start) -> None:
    start.ready(os.getpid())
    signal.pause()


def plans(*bodies) -> list[ChildPlan]:
    return [ChildPlan(f"L3/sub{index}", body) for index, body in enumerate(bodies)]


@pytest.fixture
def processes():
    made = ChildProcesses(timeout_s=20)
    yield made
    made.kill_all()


def test_each_plan_starts_a_process_and_its_value_is_returned(processes) -> None:
    values = processes.start(plans(waiting, waiting, waiting))
    assert values == [process.pid for process in processes]
    assert len({os.getpid(), *values}) == 4
    assert [process.path for process in processes] == ["L3/sub0", "L3/sub1", "L3/sub2"]


def test_all_are_started_before_the_first_is_waited_for(processes) -> None:
    """Each child waits for the others: if they were started one by one, they would wait forever."""
    pipes = [os.pipe() for _ in range(2)]

    def body(mine: int, other: int):
        def run(start) -> None:
            os.write(pipes[other][1], b"!")
            start.ready(os.read(pipes[mine][0], 1))

        return run

    assert processes.start(plans(body(0, 1), body(1, 0))) == [b"!", b"!"]
    for pipe in pipes:
        for descriptor in pipe:
            os.close(descriptor)


def test_large_values_are_returned_whole(processes) -> None:
    (value,) = processes.start(plans(lambda start: start.ready(bytes(1 << 20))))
    assert value == bytes(1 << 20)


class OddError(Exception):
    """An exception that cannot be pickled."""

    def __init__(self, one, two) -> None:
        super().__init__(f"{one} and {two}")
        self.cannot_be_pickled = lambda: None


def raising(start) -> None:
    raise ValueError("no such thing")


def raising_odd(start) -> None:
    raise OddError(1, 2)


def leaving(start) -> None:
    sys.exit(3)


def exiting(start) -> None:
    os._exit(5)


def crashing(start) -> None:
    faulthandler.disable()
    os.kill(os.getpid(), signal.SIGSEGV)


def returning(start) -> None:
    pass


# Invariant: Either all children of a Worker start, or none. The error names the child that failed.
@pytest.mark.parametrize(
    ("body", "message"),
    [
        (raising, "could not start: ValueError: no such thing"),
        (raising_odd, "could not start: OddError: 1 and 2"),
        (leaving, "could not start: SystemExit: 3"),
        (exiting, "ended by itself with code 5 while starting, before it was ready"),
        (crashing, "was ended by SIGSEGV (an invalid memory access) while starting"),
        (returning, "ended by itself with code 0 while starting, before it was ready"),
    ],
)
def test_a_child_that_fails_is_named_and_the_others_end(processes, is_gone, body, message):
    pids = []

    def other(start) -> None:
        waiting(start)

    with pytest.raises(ChildStartError) as caught:
        processes.start(plans(other, body, other))
    error = caught.value
    pids.append(error.pid)
    assert message in str(error)
    assert str(error).startswith("L3/sub1: ")
    assert (error.child, error.path) == (1, "L3/sub1")
    assert len(processes) == 0
    assert all(is_gone(pid) for pid in pids)


def test_the_error_has_the_exception_and_traceback_of_the_child(processes) -> None:
    with pytest.raises(ChildStartError) as caught:
        processes.start(plans(raising))
    assert isinstance(caught.value.__cause__, ValueError)
    assert "in raising" in caught.value.remote_traceback
    with pytest.raises(ChildStartError) as caught:
        processes.start(plans(raising_odd))
    assert caught.value.__cause__ is None
    assert "OddError" in caught.value.remote_traceback


def test_a_child_that_is_not_ready_in_time_is_named_with_its_step(is_gone) -> None:
    def slow(start) -> None:
        start.doing("loading its model")
        signal.pause()

    processes = ChildProcesses(timeout_s=5)
    begun = time.monotonic()
    with pytest.raises(ChildStartError, match=r"after 5 s: it was loading its model.*start_ti"):
        processes.start(plans(waiting, slow))
    assert time.monotonic() - begun < 60
    assert len(processes) == 0


def test_the_error_of_a_nested_child_is_kept_unchanged(processes) -> None:
    def middle(start) -> None:
        ChildProcesses().start([ChildPlan("L4/host1/sub0", raising)])

    with pytest.raises(ChildStartError) as caught:
        processes.start([ChildPlan("L4/host0", waiting), ChildPlan("L4/host1", middle)])
    assert caught.value.path == "L4/host1/sub0"
    assert str(caught.value).count("could not start") == 1


def test_after_an_error_another_start_works(processes) -> None:
    with pytest.raises(ChildStartError):
        processes.start(plans(waiting, raising))
    assert len(processes.start(plans(waiting))) == 1


def await_start(processes, index: int):
    """Poll until the start of a child has succeeded or failed; return the start."""
    limit = time.monotonic() + 20
    while not (start := processes.check_start(index)).is_over:
        assert time.monotonic() < limit
    return start


def test_a_replaced_child_ends_and_a_new_one_starts(processes, is_gone) -> None:
    old = processes.start(plans(waiting, waiting))
    processes.replace(1, ChildPlan("L3/sub1", waiting))
    assert await_start(processes, 1).value == processes[1].pid != old[1]
    assert is_gone(old[1])
    assert processes[0].pid == old[0]
    assert processes.poll() == []
    processes.replace(0, ChildPlan("L3/sub0", raising))
    with pytest.raises(ChildStartError, match="no such thing"):
        await_start(processes, 0)
    assert not processes[0].is_alive
    assert processes[1].is_alive


def test_a_child_that_exits_when_ready_is_not_ready(processes) -> None:
    """If the child counted as ready, its exit would never be reported."""
    processes.start(plans(waiting))
    processes.replace(0, ChildPlan("L3/sub0", lambda start: start.ready()))
    os.waitid(os.P_PID, processes[0].pid, os.WEXITED | os.WNOWAIT)
    assert [ending.exit_code for ending in processes.poll()] == [0]
    start = processes.check_start(0)
    assert not start.is_ready
    assert "ended by itself with code 0 while starting, before it was" in str(start.failure)


@pytest.mark.parametrize("end", ["end", "kill_all"])
def test_a_starting_child_is_killed_when_the_others_end(processes, is_gone, end) -> None:
    processes.start(plans(waiting, waiting))
    for index in range(2):
        processes.replace(index, ChildPlan(f"L3/sub{index}", lambda start: signal.pause()))
    begun = [processes[index] for index in range(2)]
    getattr(processes, end)()
    assert [process.exit.signal for process in begun] == [signal.SIGKILL] * 2
    assert len(processes) == 0


def test_a_limit_on_processes_is_an_error_with_the_numbers() -> None:
    program = (
        "import os, resource\n"
        "from pto_core.errors import CapacityError\n"
        "from pto_core.worker.processes import ChildPlan, ChildProcesses\n"
        "import signal\n"
        "def body(start):\n"
        "    start.ready()\n"
        "    signal.pause()\n"
        "if os.getuid() == 0:\n"
        "    os.setuid(54321)\n"
        "resource.setrlimit(resource.RLIMIT_NPROC, (3, 3))\n"
        "processes = ChildProcesses()\n"
        "try:\n"
        "    processes.start([ChildPlan(f'L3/sub{i}', body) for i in range(9)])\n"
        "except CapacityError as error:\n"
        "    print(error)\n"
        "print(len(processes), open('/proc/self/task/%d/children' % os.getpid()).read() == '')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "cannot be started after" in done.stdout
    assert "may have 3 processes" in done.stdout
    assert done.stdout.endswith("0 True\n")


def test_a_failing_fork_ends_those_that_were_started(processes, monkeypatch) -> None:
    fork, forks = os.fork, []

    def fork_twice() -> int:
        if len(forks) == 2:
            raise BlockingIOError(11, "Resource temporarily unavailable")
        forks.append(fork())
        return forks[-1]

    monkeypatch.setattr(os, "fork", fork_twice)
    with pytest.raises(CapacityError, match="L3/sub2 cannot be started after 2 other children"):
        processes.start(plans(waiting, waiting, waiting))
    assert len(processes) == 0


# Invariant: Every registered engine thread is parked at every fork, including the fork of a
# restarted child.
def test_engine_threads_are_parked_over_each_fork(processes, monkeypatch) -> None:
    events: list[str] = []

    class Engine:
        def park(self) -> None:
            events.append("park")

        def unpark(self) -> None:
            events.append("unpark")

        def refuse_inside(self) -> None:
            pass

    engine, fork = Engine(), os.fork

    def noting_fork() -> int:
        events.append("fork")
        return fork()

    monkeypatch.setattr(os, "fork", noting_fork)
    register_parkable(engine)
    processes.start(plans(waiting, waiting))
    assert events == ["park", "fork", "unpark"] * 2
    events.clear()
    processes.replace(0, ChildPlan("L3/sub0", waiting))
    assert events == ["park", "fork", "unpark"]
    del engine
    events.clear()
    processes.replace(1, ChildPlan("L3/sub1", waiting))
    assert events == ["fork"]


def test_two_workers_in_one_process_one_of_them_in_a_thread(processes) -> None:
    found: list[object] = []

    def other_thread() -> None:
        others = ChildProcesses()
        try:
            found.extend(others.start(plans(waiting, waiting)))
            others.end(0)
        except BaseException as error:  # noqa: BLE001
            found.append(error)

    first = processes.start(plans(waiting))
    thread = threading.Thread(target=other_thread)
    thread.start()
    thread.join()
    assert len({*first, *found}) == 3
    assert all(isinstance(pid, int) for pid in found)
    assert processes[0].poll() is None


def test_many_threads_may_start_children_at_once() -> None:
    errors: list[BaseException] = []

    def use() -> None:
        try:
            for _ in range(5):
                mine = ChildProcesses()
                mine.start(plans(waiting, waiting))
                mine.end(0)
        except BaseException as error:  # noqa: BLE001
            errors.append(error)

    threads = [threading.Thread(target=use) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


def test_limits_of_this_process_are_unchanged() -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ()), resource.getrlimit(resource.RLIMIT_CORE)
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    processes = ChildProcesses()
    processes.start(plans(waiting))
    processes.end(0)
    assert before == (
        signal.pthread_sigmask(signal.SIG_BLOCK, ()),
        resource.getrlimit(resource.RLIMIT_CORE),
    )
    assert handlers == [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
