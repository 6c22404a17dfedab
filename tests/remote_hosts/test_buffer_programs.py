"""Random programs on remote buffers, copies over faulty links, and buffers at deeper levels."""

from __future__ import annotations

import json
import random
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import faulty_link
import numpy as np
import psutil
import pytest
from remote_hosts import Agent, running_agent

from pto_core import RemoteBuffer, RemoteTaskArgs, RemoteTensorRef, TaskArgs, TensorArgType, Worker
from pto_core.errors import BufferLostError

MIB = 1 << 20
WORDS = 64
INPUT, INOUT = TensorArgType.INPUT, TensorArgType.INOUT


def mix(orch: Any, args: Any, config: Any) -> None:
    """Change the last array by the values of the others."""
    arrays = [args.tensor(index) for index in range(args.tensor_count)]
    mixed(arrays[:-1], arrays[-1], args.scalar(0))


def mixed(sources: list[Any], target: Any, number: int) -> None:
    for source in sources:
        target[: len(source)] += source[: len(target)]
    target *= 3
    target += np.uint32(number)


@dataclass(eq=False)
class Memory:
    """Words in a buffer of a host or in a shared array, with their expected values."""

    where: Any
    expected: np.ndarray[Any, Any]

    def part(self, place: slice) -> Any:
        if isinstance(self.where, RemoteBuffer):
            count = place.stop - place.start
            return RemoteTensorRef(self.where, count, "uint32", 4 * place.start)
        return self.where[place]


class Program:
    """Submits random tasks, and performs them on the expected values in the same order."""

    def __init__(self, step: Any, memory: dict[int, list[Memory]], chance: random.Random) -> None:
        self.step, self.memory, self.chance = step, memory, chance

    def __call__(self, orch: Any, args: Any, config: Any) -> None:
        for _ in range(40):
            self.submit(orch)

    def submit(self, orch: Any) -> None:
        child = self.chance.choice(list(self.memory))
        parts = [self.random_part(self.memory[child]) for _ in range(self.chance.randint(1, 3))]
        target, written = parts[-1]
        sources = [
            (memory, place)
            for memory, place in parts[:-1]
            if memory is not target or place.stop <= written.start or place.start >= written.stop
        ]
        made, number = RemoteTaskArgs(), self.chance.randrange(100)
        for memory, place in sources:
            made.add_tensor(memory.part(place), INPUT)
        made.add_tensor(target.part(written), INOUT)
        made.add_scalar(number)
        orch.submit_next_level(self.step, made, worker=child)
        values = [memory.expected[place] for memory, place in sources]
        mixed(values, target.expected[written], number)

    def random_part(self, usable: list[Memory]) -> tuple[Memory, slice]:
        first = self.chance.randrange(WORDS - 1)
        return self.chance.choice(usable), slice(first, self.chance.randint(first + 1, WORDS))


def test_random_programs_on_buffers_give_the_sequential_result(agent: Agent) -> None:
    with Worker(level=4) as worker:
        step = worker.register(mix)
        hosts = [worker.add_worker(agent.worker(num_sub_workers=0)) for _ in range(2)]
        local = worker.add_worker(Worker(level=3))
        shared = Memory(worker.shared_array((WORDS,), "uint32"), np.zeros(WORDS, np.uint32))
        for seed in range(8):
            print(f"seed={seed}")
            memory = {local: [shared]}
            for host in hosts:
                buffer = worker.remote_malloc(4 * WORDS, host)
                values = np.arange(WORDS, dtype=np.uint32) * (host + seed)
                worker.remote_copy_to(buffer, values)
                memory[host] = [shared, Memory(buffer, values)]
            worker.run(Program(step, memory, random.Random(seed)), hazards="full")
            assert np.array_equal(shared.where, shared.expected)
            for host in hosts:
                found = np.empty(WORDS, np.uint32)
                worker.remote_copy_from(found, memory[host][1].where)
                assert np.array_equal(found, memory[host][1].expected)
                worker.remote_free(memory[host][1].where)


@pytest.mark.parametrize("seed", range(2))
def test_copies_over_faulty_links_are_whole(
    faulty: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    faults = {"cut": 0.02, "lose": 0.05, "duplicate": 0.1, "reorder": 0.1, "clog": 0.1}
    monkeypatch.setenv(faulty_link.VARIABLE, json.dumps({**faults, "seed": seed}))
    nbytes = 3 * MIB + 77
    with running_agent(tmp_path, faulty, None) as agent, Worker(level=4) as worker:
        hosts = [
            worker.add_worker(agent.worker(num_sub_workers=0, remote_lease_s=20)) for _ in range(2)
        ]
        first, second = (worker.remote_malloc(nbytes, host) for host in hosts)
        sent = np.random.default_rng(seed).integers(0, 255, nbytes, np.uint8)
        worker.remote_copy_to(first, sent)
        whole = [RemoteTensorRef(one, nbytes, "uint8") for one in (first, second)]
        worker.remote_copy(whole[1], whole[0])
        found = np.empty_like(sent)
        worker.remote_copy_from(found, second)
        assert np.array_equal(found, sent)


def test_threads_copy_while_tasks_run(agent: Agent) -> None:
    def churn(orch: Any, args: Any, config: Any) -> None:
        args.tensor(0)[:] += 1

    with Worker(level=4) as worker:
        step = worker.register(churn)
        there = worker.add_worker(agent.worker(num_sub_workers=0))
        busy = worker.remote_malloc(MIB, there)
        errors: list[BaseException] = []

        def copy(seed: int) -> None:
            try:
                buffer = worker.remote_malloc(11 * MIB, there)
                sent = np.random.default_rng(seed).integers(0, 255, 11 * MIB, np.uint8)
                found = np.empty_like(sent)
                worker.remote_copy_to(buffer, sent)
                worker.remote_copy_from(found, buffer)
                assert np.array_equal(found, sent)
            except BaseException as error:  # noqa: BLE001 - the test reports it
                errors.append(error)

        threads = [threading.Thread(target=copy, args=(seed,)) for seed in range(3)]
        args = TaskArgs()
        args.add_tensor(RemoteTensorRef(busy, MIB, "uint8").tensor(), INOUT)

        def graph(orch: Any, _: Any, config: Any) -> None:
            for thread in threads:
                thread.start()
            for _ in range(100):
                orch.submit_next_level(step, args)

        worker.run(graph)
        for thread in threads:
            thread.join()
        assert not errors
        counts = np.empty(MIB, np.uint8)
        worker.remote_copy_from(counts, busy)
        assert (counts == 100).all()


@pytest.mark.parametrize("victim", ["worker", "gateway"])
def test_a_child_that_is_lost_in_a_copy_is_an_error(agent: Agent, victim: str) -> None:
    with Worker(level=4) as worker:
        remote = agent.worker(num_sub_workers=0, remote_lease_s=1)
        there = worker.add_worker(remote)
        buffer = worker.remote_malloc(64 * MIB, there)
        gateway, process = sorted(agent.processes(), key=lambda one: one.create_time())
        gateway.suspend()  # so that the copy begins, but cannot end before the kill
        killed = process if victim == "worker" else gateway
        psutil.Popen([sys.executable, "-c", _KILL, str(killed.pid), str(gateway.pid)])
        with pytest.raises(BufferLostError, match=r"^L4/host0: the remote buffer of 67108864 byt"):
            worker.remote_copy_to(buffer, np.ones(64 * MIB, np.uint8))
        new = worker.remote_malloc(64, there)
        found = np.ones(64, np.uint8)
        worker.remote_copy_from(found, new)
        assert not found.any()


_KILL = """
import os, signal, sys, time
time.sleep(0.5)
killed, gateway = map(int, sys.argv[1:])
os.kill(killed, signal.SIGKILL)
if gateway != killed:
    os.kill(gateway, signal.SIGCONT)
"""


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_buffer_is_memory_of_all_levels_below(agent: Agent, method: str) -> None:
    def leaf(args: Any) -> None:
        args.tensor(1)[:] = args.tensor(0) * 2

    def passing(inner: Any, *, is_sub: bool) -> Any:
        def graph(orch: Any, args: Any, config: Any) -> None:
            made = TaskArgs()
            made.add_tensor(args.tensors[0], INPUT)
            made.add_tensor(args.tensors[1], TensorArgType.OUTPUT_EXISTING)
            submit = orch.submit_sub if is_sub else orch.submit_next_level
            submit(inner, made)

        return graph

    pod = agent.worker(level=4, num_sub_workers=0)
    host = Worker(level=3, num_sub_workers=1, start_method=method)
    bottom = host.register(leaf)
    pod.add_worker(host)
    middle = pod.register(passing(bottom, is_sub=True))
    with Worker(level=5) as worker:
        step = worker.register(passing(middle, is_sub=False))
        there = worker.add_worker(pod)
        buffer = worker.remote_malloc(4096, there)
        halves = [RemoteTensorRef(buffer, 512, "float32", offset) for offset in (0, 2048)]
        worker.remote_copy_to(buffer, np.arange(512, dtype=np.float32))
        made = RemoteTaskArgs()
        made.add_tensor(halves[0], INPUT)
        made.add_tensor(halves[1], TensorArgType.OUTPUT_EXISTING)
        worker.run(lambda o, a, c: o.submit_next_level(step, made))
        found = np.empty(512, np.float32)
        worker.remote_copy_from(found, buffer, 2048)
        assert np.array_equal(found, 2 * np.arange(512))
