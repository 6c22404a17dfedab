"""Kills at chosen places. A process outside of the tree checks that no resource is left.

The observer compares the processes, mappings, descriptors and /dev/shm of the process with the
Worker before and after, and checks which processes map its memory. `.ci/nightly` does each test 100
times.
"""

from __future__ import annotations

import contextlib
import gc
import mmap
import os
import random
import signal
import struct
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from kill_talk import Talk
from observer import PATIENCE_S, below, children, left_of, spin_until
from sight import Sight, processes_with, worker_memory
from subject import Subject
from test_worker_trees import PROCESSES, SOON_S, Pod

from pto_core import TaskArgs, TensorArgType, Worker
from pto_core.errors import ChildDiedError, TaskFailedError

KILLS_MAX = 10
REPORT_S = 2
"""Seconds after which a kill that has not ended the run does not end it any more."""
COLUMNS = 16


@pytest.fixture
def pods_killed(request: pytest.FixtureRequest) -> int:
    return 100 if request.config.getoption("--full") else 3


@contextlib.contextmanager
def watched(body: Callable[[Talk], None]) -> Iterator[Subject]:
    subject = Subject.of(body)
    try:
        yield subject
    finally:
        subject.end()


def expect(subject: Subject, what: str) -> dict[str, Any]:
    """Require this text as the next message of the subject; do not answer the message."""
    message = subject.hear(PATIENCE_S)
    assert message is not None, f"no {what}"
    assert message["say"] == what, message
    return message


def assert_same(subject: Subject, before: Sight, places: set[str]) -> None:
    """Require the same resources as before; wait a moment for processes that are ending."""
    deadline = time.monotonic() + PATIENCE_S
    while (found := Sight.of(subject.pid).differences(before)) and time.monotonic() < deadline:
        time.sleep(0.005)
    assert found == []
    assert processes_with(places) == []


def pods(talk: Talk) -> None:
    """Create, use and close one pod after the other. Each runs until a task fails."""
    while True:
        gc.collect()
        if not talk.say("before")["goes_on"]:
            return
        pod = Pod()
        pod.worker.init()
        pod.run()
        talk.say("running")
        with contextlib.suppress(ChildDiedError, TaskFailedError):
            while True:
                pod.run()
        pod.worker.close()
        del pod
        gc.collect()
        talk.say("after")


def test_a_killed_middle_level_leaves_nothing_in_the_top(pods_killed, random_) -> None:
    with watched(pods) as subject:
        for number in range(pods_killed + 1):
            expect(subject, "before")
            before = Sight.of(subject.pid)
            subject.answer(goes_on=True)
            expect(subject, "running")
            processes = set(below(subject.pid))
            places = worker_memory([subject.pid, *processes])
            assert places
            subject.answer()
            spin_until(time.monotonic() + random_.uniform(0, 0.02))
            kill_until_heard(subject, random_, processes, places)
            assert left_of(list(processes)) == []
            if number > 0:  # the first pod creates resources that stay until the process ends
                assert_same(subject, before, places)
            subject.answer()


def kill_until_heard(
    subject: Subject, random_: random.Random, processes: set[int], places: set[str]
) -> None:
    """Kill a host during a run until the run has failed.

    A host that has no task when it is killed is only restarted; then the new host is killed.
    ``processes`` and ``places`` are updated.
    """
    for _ in range(KILLS_MAX):
        # if the run has just failed, the process is gone
        with contextlib.suppress(ProcessLookupError, IndexError):
            os.kill(random_.choice(children(subject.pid)), signal.SIGKILL)
        message = subject.hear(REPORT_S)
        if message is not None:
            assert message["say"] == "after", message
            return
        processes.update(below(subject.pid))
        places |= worker_memory([subject.pid, *processes])
    expect(subject, "after")


# Invariant: When a process of the tree dies at any instant, all processes below it end, and no
# process, descriptor or mapping is left.
def test_a_killed_top_leaves_nothing_anywhere(pods_killed, random_) -> None:
    shared_memory, took_s = set(os.listdir("/dev/shm")), []
    for _ in range(pods_killed):
        with watched(pods) as subject:
            expect(subject, "before")
            subject.answer(goes_on=True)
            expect(subject, "running")
            processes = below(subject.pid)
            assert len(processes) == PROCESSES - 1
            places = worker_memory([subject.pid, *processes])
            subject.answer()
            spin_until(time.monotonic() + random_.uniform(0, 0.02))
            begun = time.monotonic()
            os.kill(subject.pid, signal.SIGKILL)
            assert left_of(processes) == []
            took_s.append(time.monotonic() - begun)
            assert processes_with(places) == []
    assert min(took_s) < SOON_S
    assert set(os.listdir("/dev/shm")) <= shared_memory


class Finishing:
    """Tasks that report, as their last action, which process has to be killed."""

    def __init__(self, retries: int, **settings: Any) -> None:
        # memory that the test shares with the observed process
        self.memory = mmap.mmap(-1, mmap.PAGESIZE)
        self.retries = retries
        self.settings = settings

    def __call__(self, talk: Talk) -> None:
        # this creates the resources that stay until the process ends
        Worker(3, num_sub_workers=1).init().close()
        random_ = random.Random(os.getpid())
        while True:
            gc.collect()
            if not talk.say("before")["goes_on"]:
                return
            result = self._life(talk, random_)
            gc.collect()
            talk.say("after", **result)

    def _life(self, talk: Talk, random_: random.Random) -> dict[str, Any]:
        memory = self.memory

        def finish(args: Any) -> None:
            array = args.tensor(0)
            array += 1
            memory[0:8] = struct.pack("=q", os.getpid())
            spin_until(time.monotonic() + args.scalar(0) / 1e9)

        with Worker(3, num_sub_workers=2, heap_ring_size=1 << 16, **self.settings) as worker:
            rows = worker.shared_array((3, COLUMNS), "int64")
            handle = worker.register(finish)
            worker.init()
            talk.say("running")

            def graph(orch: Any, args: Any, config: Any) -> None:
                for row in rows:
                    made = TaskArgs()
                    made.add_tensor(row, TensorArgType.INOUT)
                    made.add_scalar(random_.randrange(60_000))
                    orch.submit_sub(handle, made, retries=self.retries)

            failed = 0
            try:
                worker.run(graph)
            except ChildDiedError as error:
                failed = 1 + len(error.failures)
            return {
                "failed": failed,
                "rows": np.array(rows).tolist(),
                "deaths": worker.statistics()["deaths"],
            }


@pytest.mark.parametrize(("policy", "retries"), [("fail", 0), ("restart", 0), ("restart", 1)])
def test_a_child_killed_between_finishing_and_reporting(repetitions, policy, retries) -> None:
    """Each task runs once, whether or not its success could be reported."""
    finishing = Finishing(retries, on_worker_death=policy, child_window=1)
    with watched(finishing) as subject:
        for _ in range(repetitions):
            expect(subject, "before")
            before = Sight.of(subject.pid)
            finishing.memory[0:8] = bytes(8)
            subject.answer(goes_on=True)
            expect(subject, "running")
            places = worker_memory([subject.pid])
            subject.answer()
            kill_finishing_process(finishing.memory)
            after = expect(subject, "after")
            check_rows(after, retries)
            assert_same(subject, before, places)
            subject.answer()
    finishing.memory.close()


def check_rows(after: dict[str, Any], retries: int) -> None:
    """Check the rows: without retries, one task may be lost, perhaps before it began."""
    done, not_begun = [1] * COLUMNS, [0] * COLUMNS
    assert after["deaths"] <= 1, after
    assert after["failed"] <= (0 if retries else 1), after
    assert all(row in (done, not_begun) for row in after["rows"]), after
    assert after["rows"].count(not_begun) <= after["failed"], after


def kill_finishing_process(memory: mmap.mmap) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not (pid := struct.unpack("=q", memory[0:8])[0]):
        assert time.monotonic() < deadline
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
