"""Check the cores and scheduler threads of a backend's runs."""

from __future__ import annotations

from pto_devkit import abi
from pto_devkit.checks import expect
from pto_devkit.native import StatusError
from pto_devkit.probe import Probe, expect_all_right, run_probe
from pto_devkit.subjects import BackendSubject


def check_topology(backend: BackendSubject) -> None:
    """Require that a run has the requested cores, in the numbering of the ABI.

    A run has ``block_dim`` blocks (0 means all that ``open()`` reported), each with one AIC and two
    AIV cores. AIC i is core i, and AIV j is core blocks + j. Every core belongs to exactly one
    scheduler thread, and all cores of a cluster belong to the same thread.
    """
    probe = Probe(backend)
    with backend.open() as device:
        most = device.shape.blocks
        expect(
            1 <= most <= abi.MAX_BLOCKS,
            f"open() reported {most} blocks; a device has 1 to {abi.MAX_BLOCKS}",
        )
        device.attach(probe)
        for block_dim in range(most + 1):
            for threads in range(1, abi.MAX_AICPU_THREADS + 1):
                _, journal = run_probe(
                    device, probe, [], [], block_dim=block_dim, aicpu_thread_num=threads
                )
                _expect_shape(journal.topology, block_dim or most, threads)


def _expect_shape(topology: abi.Topology, blocks: int, threads: int) -> None:
    asked = f"block_dim={blocks}, aicpu_thread_num={threads}: "
    expect(
        topology.blocks == blocks and topology.cores == 3 * blocks,
        f"{asked}got {topology.blocks} blocks and {topology.cores} cores",
    )
    expect(
        1 <= topology.schedulers <= threads,
        f"{asked}got {topology.schedulers} scheduler threads",
    )
    types = list(topology.core_type[: 3 * blocks])
    expect(
        types == [abi.Core.AIC] * blocks + [abi.Core.AIV] * 2 * blocks,
        f"{asked}the core types are {types}, not AIC first",
    )
    owners: dict[int, int] = {}
    for thread in range(topology.schedulers):
        for core in abi.cores_of(topology.thread_cores[thread]):
            expect(core not in owners, f"{asked}core {core} belongs to two scheduler threads")
            owners[core] = thread
    expect(
        sorted(owners) == list(range(3 * blocks)),
        f"{asked}the scheduler threads own the cores {sorted(owners)}",
    )
    for block in range(blocks):
        cluster = (block, blocks + 2 * block, blocks + 2 * block + 1)
        expect(
            len({owners[core] for core in cluster}) == 1,
            f"{asked}the cores {cluster} of cluster {block} belong to different threads",
        )


def check_impossible_shapes_are_refused(backend: BackendSubject) -> None:
    """Require a usage or capacity error for too many blocks or too many AICPU threads."""
    probe = Probe(backend)
    with backend.open() as device:
        device.attach(probe)
        too_many = device.shape.blocks + 1
        for shape in ((too_many, 3), (-1, 3), (1, abi.MAX_AICPU_THREADS + 1), (1, 0)):
            try:
                device.start([], block_dim=shape[0], aicpu_thread_num=shape[1])
            except StatusError as refusal:
                expect(
                    refusal.status in (abi.Status.USAGE, abi.Status.CAPACITY) and refusal.message,
                    f"block_dim, aicpu_thread_num = {shape} returned {refusal}; expected USAGE",
                )
            else:
                device.orchestration_done()
                device.wait()
                device.finish()
                expect(False, f"block_dim, aicpu_thread_num = {shape} was accepted")
        outcome, journal = run_probe(device, probe, [], [])
        expect_all_right(outcome, journal)
