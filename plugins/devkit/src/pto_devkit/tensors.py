"""Check a runtime that infers edges: order, memory, scopes, deadlocks and clusters."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

from pto_devkit import abi
from pto_devkit.checks import expect, random_numbers
from pto_devkit.graphs import Graph
from pto_devkit.native import Kernel, RecorderLog, payload_arguments
from pto_devkit.session import RuntimeSession, key, tensor
from pto_devkit.subjects import RuntimeSubject

_SLAB_BYTES = 1024
_LARGE_BYTES = 2**24
_MOST_BUFFERS = 4096
"""A number of buffers of ``_LARGE_BYTES`` that exceeds the memory of any tested device."""


def check_read_after_write(runtime: RuntimeSubject, seed: int | None = None) -> None:
    """Require that a reader runs after every earlier writer of any of its bytes."""
    tasks, size_bytes = 300, 4096
    with random_numbers(seed) as numbers, RuntimeSession(runtime) as session:
        log = RecorderLog(session.device, tasks)
        buffer = session.device.allocate(size_bytes)
        accesses = [_random_access(numbers, size_bytes) for _ in range(tasks)]
        session.start()
        for index, (tag, first, count) in enumerate(accesses):
            view = tensor(buffer, count, first, size_bytes)
            session.submit_tensors(index % 2, [(tag, view)], log.arguments(index))
        outcome = session.end()
        expect(outcome.status == abi.Status.OK, f"the run ended with {outcome.message}")
        edges = [
            (earlier, later)
            for later, (_, start, count) in enumerate(accesses)
            for earlier, (tag, first, length) in enumerate(accesses[:later])
            if tag == abi.Tag.INOUT and first < start + count and start < first + length
        ]
        Graph("random reads and writes", tasks, edges).verify(log.read())


def _random_access(numbers: random.Random, size_bytes: int) -> tuple[abi.Tag, int, int]:
    first = numbers.randrange(size_bytes)
    count = numbers.randrange(1, min(size_bytes - first, 500) + 1)
    return numbers.choice((abi.Tag.INPUT, abi.Tag.INOUT)), first, count


def check_allocated_buffers_are_apart(runtime: RuntimeSubject, seed: int | None = None) -> None:
    """Require that the buffers of a scope are aligned and do not overlap."""
    tasks = 200
    with random_numbers(seed) as numbers, RuntimeSession(runtime) as session:
        log = RecorderLog(session.device, tasks)
        session.start()
        found = []
        for index in range(tasks):
            made = tensor(0, numbers.choice((1, 1000, 1024, 5000)))
            session.submit_tensors(index % 2, [(abi.Tag.OUTPUT, made)], log.arguments(index))
            found.append((made.buffer.addr, made.buffer.size))
        outcome = session.end()
        expect(outcome.status == abi.Status.OK, f"the run ended with {outcome.message}")
        found.sort()
        for address, _ in found:
            expect(address != 0, "no memory was allocated for an OUTPUT")
            expect(address % _SLAB_BYTES == 0, f"address {address:#x} is not a multiple of 1024")
        for (address, size_bytes), (following, _) in pairwise(found):
            expect(
                address + size_bytes <= following,
                f"the buffer of {size_bytes} bytes at {address:#x} overlaps that at {following:#x}",
            )


def _submit_scoped(session: RuntimeSession, log: RecorderLog, count: int, *, scoped: bool) -> int:
    """Submit ``count`` tasks that allocate memory. Return the number of accepted tasks."""
    table, handle = session.device.runtime_table, session.device.runtime_handle
    for index in range(count):
        if scoped:
            table.scope_begin(handle, None, -1)
        made = tensor(0, _LARGE_BYTES)
        task = session.submit_tensors(1, [(abi.Tag.OUTPUT, made)], log.arguments(index))
        if scoped:
            table.scope_end(handle)
        if task < 0:
            return index
    return count


def check_scopes_give_memory_back(runtime: RuntimeSubject) -> None:
    """Require that the memory of ended scopes is reused, so that a long run completes."""
    with RuntimeSession(runtime) as session:
        log = RecorderLog(session.device, _MOST_BUFFERS)
        session.start()
        accepted = _submit_scoped(session, log, _MOST_BUFFERS, scoped=True)
        outcome = session.end()
        expect(
            outcome.status == abi.Status.OK,
            f"after {accepted} scopes of {_LARGE_BYTES} bytes, one after the other, the run ended "
            f"with {outcome.message}",
        )
        Graph("scopes", _MOST_BUFFERS, []).verify(log.read())


def check_deadlock_is_proven(runtime: RuntimeSubject) -> None:
    """Require that a scope that needs more memory than exists ends with a proven deadlock.

    The device remains usable afterwards.
    """
    with RuntimeSession(runtime) as session:
        log = RecorderLog(session.device, _MOST_BUFFERS)
        session.start()
        _submit_scoped(session, log, _MOST_BUFFERS, scoped=False)
        outcome = session.end()
        expect(
            outcome.status == abi.Status.DEADLOCK,
            f"{_MOST_BUFFERS} buffers of {_LARGE_BYTES} bytes in one scope: the run ended with "
            f"{outcome.status.name} {outcome.message}, not with a deadlock",
        )
        log.clear()
        session.start()
        session.submit_tensors(1, [(abi.Tag.INOUT, key(log.address))], log.arguments(0))
        outcome = session.end()
        expect(outcome.status == abi.Status.OK, f"the next run ended with {outcome.message}")


def check_deadlock_names_what_suffices(runtime: RuntimeSubject) -> None:
    """Require that the error of a deadlock states a size that suffices for the whole run."""
    with RuntimeSession(runtime) as session:
        log = RecorderLog(session.device, _MOST_BUFFERS)
        session.start()
        accepted = _submit_scoped(session, log, _MOST_BUFFERS, scoped=False)
        outcome = session.end()
        expect(
            accepted == _MOST_BUFFERS,
            f"after the deadlock the runtime refused submit {accepted}; planning continues",
        )
        expect(
            outcome.error.value >= _MOST_BUFFERS * _LARGE_BYTES,
            f"{_MOST_BUFFERS} buffers of {_LARGE_BYTES} bytes in one scope: the error states that "
            f"{outcome.error.value} suffice",
        )


def check_clusters(runtime: RuntimeSubject, rounds: int = 50) -> None:
    """Require that the tasks of a cluster run on its cores: one AIC and two AIVs."""
    ran: dict[int, int] = {}

    def note(payload: Any, core: int, _error: Any) -> int:
        ran[payload_arguments(payload.contents)[0]] = core
        return 0

    with RuntimeSession(runtime) as session:
        blocks = session.device.shape.blocks
        kernels: list[Kernel] = [
            session.device.load_callback(func_id, core, note)
            for func_id, core in ((0, abi.Core.AIC), (1, abi.Core.AIV))
        ]
        session.kernels = kernels
        session.start()
        table, handle = session.device.runtime_table, session.device.runtime_handle
        clusters = []
        for _ in range(rounds):
            cluster = table.allocate_cluster(handle, None, 0)
            expect(0 <= cluster < blocks, f"cluster {cluster} is not one of 0 to {blocks - 1}")
            for func_id in (0, 1, 1):
                clusters.append(cluster)
                session.submit_tensors(func_id, (), [len(clusters)], cluster=cluster)
            table.free_cluster(handle, cluster)
        outcome = session.end()
        expect(outcome.status == abi.Status.OK, f"the run ended with {outcome.message}")
        for number, cluster in enumerate(clusters, 1):
            core = ran.get(number)
            mine = (cluster,), (blocks + 2 * cluster, blocks + 2 * cluster + 1)
            expect(
                core in (mine[0] if number % 3 == 1 else mine[1]),
                f"task {number} of cluster {cluster} ran on core {core} of another cluster",
            )
