"""Buffers on other hosts: their content, order and loss, and the calls that are refused."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from remote_hosts import Agent, add, counted, double, on_sub, task_args

from pto_core import (
    RemoteBuffer,
    RemoteTaskArgs,
    RemoteTensorRef,
    TaskArgs,
    TensorArgType,
    Worker,
)
from pto_core.errors import (
    BufferLostError,
    CapacityError,
    ChildDiedError,
    ControlError,
    TaskFailedError,
    UsageError,
    WorkerClosedError,
)

INPUT, INOUT = TensorArgType.INPUT, TensorArgType.INOUT
EXISTING = TensorArgType.OUTPUT_EXISTING
MIB = 1 << 20


def remote_args(*tensors: Any, out: TensorArgType = EXISTING) -> RemoteTaskArgs:
    """Return task arguments; the last tensor has the tag ``out``, the others are inputs."""
    made = RemoteTaskArgs()
    for tensor in tensors[:-1]:
        made.add_tensor(tensor, INPUT)
    made.add_tensor(tensors[-1], out)
    return made


def content(worker: Worker, buffer: RemoteBuffer) -> np.ndarray[Any, Any]:
    found = np.empty(buffer.nbytes // 4, np.float32)
    worker.remote_copy_from(found, buffer)
    return found


def test_tasks_use_buffers_whose_bytes_stay_on_their_host(agent: Agent) -> None:
    remote = agent.worker()
    twice, total = on_sub(remote.register(double)), on_sub(remote.register(add))
    with Worker(level=4) as worker:
        twice, total = worker.register(twice), worker.register(total)
        there = worker.add_worker(remote)
        count = 300_001
        buffer = worker.remote_malloc(3 * count * 4, there)
        assert (content(worker, buffer) == 0).all()
        parts = [RemoteTensorRef(buffer, (count,), "float32", i * count * 4) for i in range(3)]
        y = counted(worker, count)
        worker.remote_copy_to(buffer, np.arange(count, dtype=np.float32))

        def graph(orch: Any, args: Any, config: Any) -> None:
            # No worker= is needed, because the buffers determine the host.
            orch.submit_next_level(twice, remote_args(parts[0], parts[1]))
            orch.submit_next_level(total, remote_args(parts[0], parts[1], parts[2]), worker=there)
            orch.submit_next_level(twice, remote_args(parts[2], y), worker=there)

        worker.run(graph)
        assert np.array_equal(y, 6 * np.arange(count, dtype=np.float32))
        halves = content(worker, buffer).reshape(3, count)
        assert np.array_equal(halves[2], 3 * halves[0])
        part = np.empty(7, np.float32)
        worker.remote_copy_from(part, buffer, offset=4 * (count + 5))
        assert np.array_equal(part, 2.0 * np.arange(5, 12))
        worker.remote_free(buffer)


def test_the_parent_has_no_memory_at_the_addresses_of_buffers(agent: Agent) -> None:
    with Worker(level=4) as worker:
        there = worker.add_worker(agent.worker(num_sub_workers=0))
        buffer = worker.remote_malloc(4096, there)
        maps = [line.split() for line in Path("/proc/self/maps").read_text().splitlines()]
        spans = [
            (tuple(int(one, 16) for one in first.split("-")), access) for first, access, *_ in maps
        ]
        (found,) = [access for (start, end), access in spans if start <= buffer.address < end]
        assert found == "---p"


def test_other_submits_take_buffers(agent: Agent) -> None:
    """The other calls that submit: many tasks in one call, and the typed submits of a session."""

    def fill(orch: Any, args: Any, config: Any) -> None:
        args.tensor(0)[:] += args.scalar(0)

    with Worker(level=4) as worker:
        step = worker.register(fill)
        hosts = [worker.add_worker(agent.worker(num_sub_workers=0)) for _ in range(2)]
        buffers = [worker.remote_malloc(4 * 4 * 8, host) for host in hosts]
        rows = RemoteTaskArgs()
        rows.add_tensor(RemoteTensorRef(buffers[1], (4, 8)), INOUT)

        def graph(orch: Any, args: Any, config: Any) -> None:
            orch.submit_next_level_many(step, rows, np.arange(4, dtype=np.int64))

        worker.run(graph)
        expected = np.repeat(np.arange(4, dtype=np.float32), 8)
        assert np.array_equal(content(worker, buffers[1]), expected)
        with worker.session() as s:
            s.submit(step, RemoteTensorRef(buffers[1], (8,), "float32", 32), 5)
            with pytest.raises(UsageError, match="memory of child 1, but worker= names child 0"):
                s.submit(step, RemoteTensorRef(buffers[1], (8,)), 5, worker=0)
        expected[8:16] += 5
        assert np.array_equal(content(worker, buffers[1]), expected)
        assert not content(worker, buffers[0]).any()


def test_a_large_copy_takes_bounded_memory(agent: Agent) -> None:
    nbytes = 300 * MIB
    with Worker(level=4) as worker:
        there = worker.add_worker(agent.worker(num_sub_workers=0))
        worker.init()
        buffer = worker.remote_malloc(nbytes, there)
        (relay,) = [one for one in psutil.Process().children() if one.pid != agent.process.pid]
        gateway = min(agent.processes(), key=lambda one: one.create_time())
        before = [_private_bytes(one) for one in (relay, gateway)]
        chance = np.random.default_rng(1)
        sent = chance.integers(0, 255, nbytes, np.uint8)
        worker.remote_copy_to(buffer, sent)
        found = np.empty_like(sent)
        worker.remote_copy_from(found, buffer)
        assert np.array_equal(found, sent)
        after = [_private_bytes(one) for one in (relay, gateway)]
        assert all(new - old < 120 * MIB for old, new in zip(before, after, strict=True))


class InterruptError(Exception):
    """The exception that the signal handler raises."""


@contextmanager
def interrupted() -> Iterator[None]:
    """Interrupt a call that does not end by itself."""

    def interrupt(number: int, frame: Any) -> None:
        raise InterruptError

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    try:
        with pytest.raises(InterruptError):
            yield
    finally:
        signal.signal(signal.SIGALRM, before)


def test_an_interrupted_copy_does_not_change_the_next_one(agent: Agent) -> None:
    """The content of the interrupted copy may arrive while the next copy runs."""
    nbytes = 8 * MIB
    with Worker(level=4) as worker:
        there = worker.add_worker(agent.worker(num_sub_workers=0))
        first, second = (worker.remote_malloc(nbytes, there) for _ in range(2))
        ones, found = np.full(nbytes, 1, np.uint8), np.empty(nbytes, np.uint8)
        worker.remote_copy_to(first, ones)
        gateway = min(agent.processes(), key=lambda one: one.create_time())
        gateway.suspend()
        with interrupted():
            worker.remote_copy_from(found, first)
        for _ in range(4):  # use up the credits, so that the content of the next copy is sent late
            with interrupted():
                worker.remote_copy_to(first, ones)
        resume = threading.Timer(0.3, gateway.resume)
        resume.start()
        sent = np.full(nbytes, 2, np.uint8)
        worker.remote_copy_to(second, sent)
        resume.join()
        for buffer, expected in ((first, ones), (second, sent)):
            worker.remote_copy_from(found, buffer)
            assert np.array_equal(found, expected)


def _private_bytes(process: psutil.Process) -> int:
    """Return the memory of a process without its files, such as the memory of buffers."""
    memory = process.memory_info()
    return int(memory.rss - memory.shared)


def test_freed_memory_returns_to_its_host_and_reads_as_zeros(agent: Agent) -> None:
    # too few addresses for two buffers, so the second one gets those of the first
    with Worker(level=4, remote_buffer_bytes=100 * MIB) as worker:
        there = worker.add_worker(agent.worker(num_sub_workers=0))
        worker.init()
        first = worker.remote_malloc(64 * MIB + 5, there)
        worker.remote_copy_to(first, np.ones(first.nbytes, np.uint8))
        gateway = min(agent.processes(), key=lambda one: one.create_time())
        assert gateway.memory_info().shared > 64 * MIB
        worker.remote_free(first)
        assert gateway.memory_info().shared < 50 * MIB
        second = worker.remote_malloc(64 * MIB + 5, there)
        assert second.address == first.address
        found = np.ones(second.nbytes, np.uint8)
        worker.remote_copy_from(found, second)
        assert not found.any()
        with pytest.raises(UsageError, match="was freed; allocate another one"):
            worker.remote_copy_to(first, b"x")
        with pytest.raises(UsageError, match="was freed"):
            worker.remote_free(first)


def test_a_buffer_of_one_host_in_a_task_of_another_child_is_refused(agent: Agent) -> None:
    near = Worker(level=3, num_sub_workers=1)
    remotes = [agent.worker(num_sub_workers=0) for _ in range(2)]

    def nothing(orch: Any, args: Any, config: Any) -> None:
        raise AssertionError("this task must not run")

    with Worker(level=4, num_sub_workers=1) as worker:
        step, leaf = worker.register(nothing), worker.register(double)
        one, other, local = map(worker.add_worker, (*remotes, near))
        here, there = (worker.remote_malloc(64, child) for child in (one, other))
        ours, theirs = (RemoteTensorRef(buffer, (16,)) for buffer in (here, there))

        def graph(orch: Any, args: Any, config: Any) -> None:
            for child in (other, local):
                with pytest.raises(
                    UsageError,
                    match=rf"memory of child {one}, but worker= names child {child}; name the "
                    "child that has the memory",
                ):
                    orch.submit_next_level(step, remote_args(ours), worker=child)
            with pytest.raises(UsageError, match=f"child {one}, and .* memory of child {other}"):
                orch.submit_next_level(step, remote_args(ours, theirs))
            with pytest.raises(UsageError, match="memory of a child, which SUB children cannot"):
                orch.submit_sub(leaf, remote_args(ours))
            with pytest.raises(UsageError, match="which this process does not have; pass it to"):
                TaskArgs().add_tensor(ours)
            with pytest.raises(UsageError, match=r"is not in shared memory"):
                orch.submit_next_level(step, remote_args(np.ones(4, np.float32)), worker=one)

        worker.run(graph)
        with pytest.raises(UsageError, match="which this process does not have"):
            np.asarray(ours)
        with pytest.raises(UsageError, match=rf"worker {local} is not a Worker on another host"):
            worker.remote_malloc(64, local)
        assert worker.statistics()["submitted"] == 0


def test_wrong_uses_are_refused(agent: Agent) -> None:
    with Worker(level=4, remote_buffer_bytes=8 * MIB) as worker, Worker(level=4) as another:
        there = worker.add_worker(agent.worker(num_sub_workers=0))
        another.add_worker(Worker(level=3))
        buffer = worker.remote_malloc(100, there)
        for nbytes in (0, -1, True, 1.5):
            with pytest.raises(UsageError, match="pass a positive number"):
                worker.remote_malloc(nbytes, there)  # type: ignore[arg-type]
        for offset, count in ((0, 26), (4, 25), (101, 0), (-4, 1)):
            with pytest.raises(UsageError, match="offset"):
                RemoteTensorRef(buffer, (count,), "float32", offset)
            with pytest.raises(UsageError, match="inside the buffer"):
                worker.remote_copy_to(buffer, np.ones(count, np.float32), offset)
        with pytest.raises(CapacityError, match="set a larger remote_buffer_bytes before init"):
            worker.remote_malloc(8 * MIB, there)
        with pytest.raises(UsageError, match="has no children on other hosts"):
            another.remote_free(buffer)
        with pytest.raises(UsageError, match="is not a buffer of this Worker"):
            worker.remote_free(None)  # type: ignore[arg-type]
        with pytest.raises(UsageError, match="remote_malloc was called during a capture"):
            worker.capture(lambda o, a, c: worker.remote_malloc(4, there))
    with pytest.raises(WorkerClosedError):
        worker.remote_free(buffer)
    with pytest.raises(WorkerClosedError):
        remote_args(RemoteTensorRef(buffer, (4,)))


def test_more_than_the_memory_of_the_host_is_refused(agent: Agent) -> None:
    with Worker(level=4) as worker:
        there = worker.add_worker(agent.worker(num_sub_workers=0))
        with pytest.raises(ControlError, match=r"CapacityError: .*leaves \d+ bytes there; free"):
            worker.remote_malloc(2**40 - 2**30, there)


def test_a_buffer_in_use_is_not_freed(agent: Agent) -> None:
    def nothing(orch: Any, args: Any, config: Any) -> None:
        pass

    def wait_for_flag(orch: Any, args: Any, config: Any) -> None:
        while not args.tensor(0)[0]:
            time.sleep(0.01)

    near = Worker(level=3)
    with Worker(level=4) as worker:
        step, wait = worker.register(nothing), worker.register(wait_for_flag)
        there = worker.add_worker(agent.worker(num_sub_workers=0))
        here = worker.add_worker(near)
        buffer = worker.remote_malloc(64, there)
        flag, y = worker.shared_array((1,)), counted(worker, 16)

        def graph(orch: Any, args: Any, config: Any) -> None:
            first = orch.submit_next_level(wait, task_args(flag, y), worker=here)
            orch.submit_next_level(step, remote_args(y, RemoteTensorRef(buffer, (16,))))
            with pytest.raises(UsageError, match=r"while task 1 \(.*\), which names it, has not"):
                worker.remote_free(buffer)
            flag[0] = 1
            first.wait()

        worker.run(graph)
        worker.remote_free(buffer)


def test_a_captured_graph_uses_a_buffer_until_it_is_freed(agent: Agent) -> None:
    remote = agent.worker()
    step = on_sub(remote.register(double))
    with Worker(level=4) as worker:
        step, there = worker.register(step), worker.add_worker(remote)
        buffer = worker.remote_malloc(64, there)
        y = counted(worker, 16)
        ref = RemoteTensorRef(buffer, (16,))
        captured = worker.capture(lambda o, a, c: o.submit_next_level(step, remote_args(ref, y)))
        for value in (1, 2):
            worker.remote_copy_to(buffer, np.full(16, value, np.float32))
            worker.replay(captured)
            assert (y == 2 * value).all()
        worker.remote_free(buffer)
        other = worker.remote_malloc(64, there)
        with pytest.raises(UsageError, match="uses memory of child 0 that was freed since"):
            worker.replay(captured)
        assert not content(worker, other).any()


def fatal(orch: Any, args: Any, config: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_the_use_of_a_lost_buffer_is_an_error_that_names_it(agent: Agent) -> None:
    remote = agent.worker()
    step = on_sub(remote.register(double))
    with Worker(level=4) as worker:
        step, kill = worker.register(step), worker.register(fatal)
        there = worker.add_worker(remote)
        old = worker.remote_malloc(64, there)
        ref = RemoteTensorRef(old, (16,))
        worker.remote_copy_to(old, np.ones(16, np.float32))
        y = counted(worker, 16)
        old_args = remote_args(ref, y)
        with pytest.raises(ChildDiedError):
            worker.run(lambda o, a, c: o.submit_next_level(kill, task_args(y), worker=there))
        message = r"^L4/host0: the remote buffer of 64 bytes at 0x\w+ was lost with the session"
        with pytest.raises(BufferLostError, match=message):
            content(worker, old)
        with pytest.raises(BufferLostError, match=message):
            worker.remote_copy_to(old, b"1234")
        with pytest.raises(BufferLostError, match=message):
            remote_args(ref)
        new = worker.remote_malloc(64, there)
        assert (content(worker, new) == 0).all()
        assert old.is_lost
        assert not new.is_lost
        with pytest.raises(BufferLostError, match=message):
            worker.remote_copy_to(old, b"1234")
        worker.remote_free(old)
        with pytest.raises(UsageError, match="whose child has not been lost"):
            worker.run(lambda o, a, c: o.submit_next_level(step, old_args))
        worker.remote_copy_to(new, np.full(16, 4, np.float32))
        args = remote_args(RemoteTensorRef(new, (16,)), y)
        worker.run(lambda o, a, c: o.submit_next_level(step, args))
        assert (y == 8).all()


# Invariant: A task that names a remote buffer runs with its content, or fails. After the loss of
# the buffer it never runs with other content.
def test_a_task_that_was_submitted_before_the_loss_fails_in_the_new_session(agent: Agent) -> None:
    """The new session does not have the buffer, so the task must not run with other content."""
    remote = agent.worker(num_sub_workers=0)

    def fill(orch: Any, args: Any, config: Any) -> None:
        args.tensor(args.tensor_count - 1)[:] = 5

    addresses = 64 * MIB  # few, so that they would soon be used again
    with Worker(level=4, on_worker_death="restart", remote_buffer_bytes=addresses) as worker:
        kill, step = worker.register(fatal), worker.register(fill)
        there = worker.add_worker(remote)
        buffer = worker.remote_malloc(4 * MIB, there)
        args = remote_args(RemoteTensorRef(buffer, (16,)), counted(worker, 16))
        y = counted(worker, 16)

        def graph(orch: Any, _: Any, config: Any) -> None:
            dead = orch.submit_next_level(kill, task_args(y), worker=there)
            orch.submit_next_level(step, args, retries=2)
            dead.wait()
            # The addresses of a lost buffer are not used again while tasks that name it may be
            # pending.
            others = [worker.remote_malloc(nbytes, there) for nbytes in (40 * MIB, 20 * MIB)]
            assert buffer.address not in [other.address for other in others]
            with pytest.raises(CapacityError):
                worker.remote_malloc(4 * MIB, there)

        with pytest.raises((TaskFailedError, ChildDiedError)) as info:
            worker.run(graph)
        reasons = " ".join(map(str, info.value.failures))
        assert "BufferLostError: 64 bytes at 0x" in reasons
        assert worker.remote_malloc(4 * MIB, there).address == buffer.address
