"""The content of shared arrays: which bytes travel, and that no written byte is lost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from network import NAME, Network
from remote_hosts import Agent, task_args

from pto_core import Worker

MIB = 1 << 20
SLACK = 200_000  # bytes of heads, heartbeats and encryption


def sum_of(orch: Any, args: Any, config: Any) -> None:
    args.tensor(1)[0] = int(args.tensor(0).astype(np.int64).sum())


def fill(orch: Any, args: Any, config: Any) -> None:
    """Write a value to every ``step``-th element of the last tensor, from ``first`` on."""
    step, first, value = (args.scalar(i) for i in range(3))
    args.tensor(args.tensor_count - 1)[first::step] = value


def fill_args(array: Any, step: int, first: int, value: int, *read: Any) -> Any:
    made = task_args(*read, array)
    for scalar in (step, first, value):
        made.add_scalar(scalar)
    return made


def bytes_sent(network: Network, act: Callable[[], object]) -> int:
    """Return the bytes that travel to the host during a call."""
    before = network.counts()["to_host"]
    act()
    return network.counts()["to_host"] - before


def test_an_unchanged_input_travels_once_and_a_changed_byte_as_one_piece(
    agent: Agent, network: Network, networked_keys: Path
) -> None:
    with Worker(level=4) as worker:
        step = worker.register(sum_of)
        remote = agent.worker(num_sub_workers=0, remote_transport=NAME, keys=networked_keys)
        there = worker.add_worker(remote)
        x = worker.shared_array((8 * MIB,), "uint8")
        y = worker.shared_array((1,), "int64")
        x[:] = np.random.default_rng(7).integers(0, 200, len(x))

        def run() -> None:
            worker.run(lambda o, a, c: o.submit_next_level(step, task_args(x, y), worker=there))
            assert y[0] == int(x.astype(np.int64).sum())

        worker.init()
        assert len(x) < bytes_sent(network, run) < 1.1 * len(x)
        assert bytes_sent(network, run) < SLACK
        x[3 * MIB + 5] += 1
        assert MIB <= bytes_sent(network, run) < MIB + SLACK


def test_a_remote_task_sees_what_the_program_writes_between_two_tasks(agent: Agent) -> None:
    with Worker(level=4) as worker:
        step = worker.register(sum_of)
        there = worker.add_worker(agent.worker(num_sub_workers=0))
        x = worker.shared_array((3 * MIB,), "uint8")
        y = worker.shared_array((1,), "int64")
        with worker.session() as session:
            for value in range(1, 6):
                x[value * 1000] = value
                submit = session.orchestrator.submit_next_level
                submit(step, task_args(x, y), worker=there).result()
                assert y[0] == sum(range(value + 1))


def test_two_hosts_and_the_program_write_neighbouring_bytes_of_one_piece(agent: Agent) -> None:
    with Worker(level=4) as worker:
        step = worker.register(fill)
        hosts = [worker.add_worker(agent.worker(num_sub_workers=0)) for _ in range(2)]
        local = worker.add_worker(Worker(level=3, num_sub_workers=0))
        data = worker.shared_array((2 * MIB,), "uint8")
        parts = [data[part : part + 1] for part in range(99, 130)]

        def graph(orch: Any, args: Any, config: Any) -> None:
            for number, part in enumerate(parts):
                child = [*hosts, local][number % 3]
                orch.submit_next_level(step, fill_args(part, 1, 0, number + 1), worker=child)

        for _ in range(2):
            worker.run(graph)
            assert data[98:131].tolist() == [0, *range(1, len(parts) + 1), 0]
            data[:] = 0


def test_two_hosts_write_halves_of_one_buffer(agent: Agent) -> None:
    """First, each host writes its half. Then both tasks name the whole buffer and write other
    bytes.
    """
    with Worker(level=4) as worker:
        step = worker.register(fill)
        hosts = [worker.add_worker(agent.worker(num_sub_workers=0)) for _ in range(2)]
        y = worker.shared_array((2 * MIB + 100,), "uint8")
        half = len(y) // 2 - 7

        def write_halves(orch: Any, args: Any, config: Any) -> None:
            for number, part in enumerate((y[:half], y[half:])):
                made = fill_args(part, 1, 0, 3 + number)
                orch.submit_next_level(step, made, worker=hosts[number])

        def write_bytes(orch: Any, args: Any, config: Any) -> None:
            for number, host in enumerate(hosts):
                made = fill_args(y, 4, number, 5 + number)
                orch.submit_next_level(step, made, worker=host)

        worker.run(write_halves)
        expected = np.array([3] * half + [4] * (len(y) - half))
        assert np.array_equal(y, expected)
        worker.run(write_bytes)
        expected[0::4], expected[1::4] = 5, 6
        assert np.array_equal(y, expected)


def test_a_value_that_equals_a_stale_one_is_written(agent: Agent) -> None:
    """The shadow still has the value of an earlier run, but home memory has changed since then."""
    with Worker(level=4) as worker:
        total, step = worker.register(sum_of), worker.register(fill)
        hosts = [worker.add_worker(agent.worker(num_sub_workers=0)) for _ in range(2)]
        y, out = worker.shared_array((5000,), "uint8"), worker.shared_array((1,), "int64")
        y[:] = 5

        def read(orch: Any, args: Any, config: Any) -> None:
            for host in hosts:
                orch.submit_next_level(total, task_args(y, out), worker=host)

        def write(orch: Any, args: Any, config: Any) -> None:
            orch.submit_next_level(step, fill_args(y, 2, 0, 5), worker=hosts[0])

        worker.run(read)
        y[:] = 9
        worker.run(write)
        assert y.tolist() == [5, 9] * 2500

        def overwrite(orch: Any, args: Any, config: Any) -> None:
            """The second host has never received the value 8, which the first host writes."""
            first = orch.submit_next_level(step, fill_args(y, 1, 0, 8), worker=hosts[0])
            second = fill_args(y, 2, 1, 5)
            # needed, because OUTPUT_EXISTING adds no dependency on the first task
            second.add_dep(first)
            orch.submit_next_level(step, second, worker=hosts[1])

        worker.run(overwrite)
        assert y.tolist() == [8, 5] * 2500


def test_ranges_that_no_task_uses_are_freed_above_the_quota(agent: Agent) -> None:
    def shadow_bytes() -> int:
        files = {
            (found.st_dev, found.st_ino): found.st_blocks * 512
            for process in agent.processes()
            for one in Path(f"/proc/{process.pid}/fd").iterdir()
            if "pto-shadow" in str(one.readlink()) and (found := one.stat())
        }
        assert files
        return sum(files.values())

    quota, blocks = 4 * MIB, 24
    with Worker(level=4, heap_ring_size=1 << 16) as worker:
        step = worker.register(sum_of)
        remote = agent.worker(num_sub_workers=0, remote_memory_limit=quota)
        there = worker.add_worker(remote)
        data = worker.shared_array((blocks, MIB), "uint8")
        y = worker.shared_array((blocks,), "int64")
        data[:] = np.arange(blocks)[:, None]
        worker.init()
        largest = 0
        for _ in range(2):
            for block in range(blocks):
                made = task_args(data[block], y[block : block + 1])
                worker.run(lambda o, a, c, made=made: o.submit_next_level(step, made, worker=there))
                largest = max(largest, shadow_bytes())
        assert y.tolist() == [MIB * block for block in range(blocks)]
        # beyond the quota: pieces of the task in flight, and other arrays
        assert largest <= quota + 4 * MIB
