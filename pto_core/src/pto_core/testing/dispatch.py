"""What a backend promises about cores, dispatch and completion; a :class:`Probe` drives it."""

from __future__ import annotations

import ctypes
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from pto_core.testing import abi
from pto_core.testing.failure import ContractError, expect
from pto_core.testing.native import Kernel, NativeDevice, Outcome, StatusError
from pto_core.testing.probe import Journal, Probe, Work
from pto_core.testing.random_seed import random_numbers
from pto_core.testing.recording import RecorderLog, words_sum
from pto_core.testing.subjects import BackendSubject

_GATE_LIMIT_MS = 10_000


def run_probe(
    device: NativeDevice,
    probe: Probe,
    kernels: Sequence[Kernel],
    work: Sequence[Work],
    *,
    block_dim: int = 0,
    aicpu_thread_num: int = 3,
) -> tuple[Outcome, Journal]:
    """Run ``work`` on a device that ``probe`` is attached to; give the outcome and the journal."""
    probe.load(work)
    device.start(kernels, block_dim=block_dim, aicpu_thread_num=aicpu_thread_num)
    device.orchestration_done()
    device.wait()
    return device.finish(), probe.journal


def recorder_work(log: RecorderLog, kernels: Sequence[Kernel], tasks: int) -> list[Work]:
    """Give ``tasks`` recorder tasks, two of three for AIV, each with four words of its own."""
    return [
        Work(
            task,
            kernels[abi.Core.AIC if task % 3 == 0 else abi.Core.AIV],
            log.arguments(task, _words_of(task)),
        )
        for task in range(tasks)
    ]


def _words_of(task: int) -> list[int]:
    return [task, task * 7 + 1, task ^ 0x55, 2**63 + task]


def _expect_ok(outcome: Outcome, journal: Journal) -> None:
    expect(not journal.violations, "; ".join(journal.violations))
    expect(
        outcome.status == abi.Status.OK,
        f"a run without a fault ended with {outcome.status.name}: {outcome.message}",
    )


def check_topology(backend: BackendSubject) -> None:
    """Require that a run gets the cores it asked for, in the numbering of the ABI.

    ``block_dim`` blocks (0: all there are) of one AIC and two AIV; AIC i is core i, AIV j is core
    blocks + j; every core has exactly one scheduler thread, and a cluster's cores have the same.
    """
    most = backend.native.table.max_blocks
    expect(1 <= most <= abi.MAX_BLOCKS, f"max_blocks is {most}, not 1 to {abi.MAX_BLOCKS}")
    probe = Probe()
    with backend.open() as device:
        device.attach(probe)
        for block_dim in sorted({0, 1, 2, most // 2, most - 1, most}):
            for threads in range(1, abi.MAX_AICPU_THREADS + 1):
                if block_dim >= 0:
                    _, journal = run_probe(
                        device, probe, [], [], block_dim=block_dim, aicpu_thread_num=threads
                    )
                    assert journal.topology is not None
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
        for core in topology.thread_cores[thread].cores():
            expect(core not in owners, f"{asked}core {core} belongs to two scheduler threads")
            owners[core] = thread
    expect(sorted(owners) == list(range(3 * blocks)), f"{asked}owned cores are {sorted(owners)}")
    for block in range(blocks):
        cluster = (block, blocks + 2 * block, blocks + 2 * block + 1)
        expect(
            len({owners[core] for core in cluster}) == 1,
            f"{asked}the cores {cluster} of cluster {block} belong to different threads",
        )


def check_impossible_shapes_are_refused(backend: BackendSubject) -> None:
    """Require a usage or capacity error for blocks or AICPU threads that do not exist."""
    probe = Probe()
    with backend.open() as device:
        device.attach(probe)
        too_many = backend.native.table.max_blocks + 1
        for shape in ((too_many, 3), (-1, 3), (1, abi.MAX_AICPU_THREADS + 1), (1, 0)):
            try:
                device.start([], block_dim=shape[0], aicpu_thread_num=shape[1])
            except StatusError as refusal:
                expect(
                    refusal.status in (abi.Status.USAGE, abi.Status.CAPACITY) and refusal.message,
                    f"block_dim, aicpu_thread_num = {shape} answered {refusal}; expected USAGE",
                )
            else:
                device.orchestration_done()
                device.wait()
                device.finish()
                expect(False, f"block_dim, aicpu_thread_num = {shape} was accepted")
        outcome, journal = run_probe(device, probe, [], [])
        _expect_ok(outcome, journal)


def check_each_task_runs_once(backend: BackendSubject, tasks: int = 300) -> None:
    """Require every dispatched task to have run exactly once when the run is over."""
    probe = Probe()
    with backend.open() as device:
        kernels = backend.load_recorders(device)
        device.attach(probe)
        log = RecorderLog(device, tasks)
        for block_dim, threads in ((0, 3), (1, 1), (2, 4)):
            log.clear()
            outcome, journal = run_probe(
                device,
                probe,
                kernels,
                recorder_work(log, kernels, tasks),
                block_dim=block_dim,
                aicpu_thread_num=threads,
            )
            _expect_ok(outcome, journal)
            for task, runs in enumerate(log.read()["runs"]):
                expect(
                    runs == 1, f"task {task} of {tasks} ran {runs} times (block_dim={block_dim})"
                )


def check_completions_are_reported_once(backend: BackendSubject, tasks: int = 300) -> None:
    """Require ``poll`` to report every finished core once, and no other core."""
    probe = Probe()
    with backend.open() as device:
        kernels = backend.load_recorders(device)
        device.attach(probe)
        log = RecorderLog(device, tasks)
        outcome, journal = run_probe(device, probe, kernels, recorder_work(log, kernels, tasks))
        _expect_ok(outcome, journal)
        expect(
            sorted(journal.completed) == sorted(journal.dispatched.items()),
            f"{len(journal.dispatched)} tasks were dispatched, "
            f"{len(journal.completed)} completions reported, not the same ones",
        )


def check_payload_is_copied(backend: BackendSubject, seed: int | None = None) -> None:
    """Require that a core has a copy of the payload, made before ``dispatch`` returns.

    Holds for the largest number of arguments and for a payload of the largest size.
    """
    with random_numbers(seed) as numbers, backend.open() as device:
        kernels = backend.load_recorders(device)
        probe = Probe()
        device.attach(probe)
        sizes = [1, 12, 37, abi.MAX_KERNEL_ARGS - 4] * 20
        log = RecorderLog(device, len(sizes))
        words = [[numbers.getrandbits(64) for _ in range(size)] for size in sizes]
        work = [
            Work(task, kernels[task % 2], log.arguments(task, words[task]))
            for task in range(len(sizes))
        ]
        outcome, journal = run_probe(device, probe, kernels, work)
        _expect_ok(outcome, journal)
        _expect_sums(log, words)


def check_relative_arguments(backend: BackendSubject, seed: int | None = None) -> None:
    """Require that arguments in ``relative_args`` reach the kernel as addresses in its copy."""
    with random_numbers(seed) as numbers, backend.open() as device:
        kernels = backend.load_recorders(device)
        probe = Probe()
        device.attach(probe)
        most = (abi.MAX_PAYLOAD - ctypes.sizeof(abi.Payload) - 8 * 4) // 8
        sizes = [1, 5, 100, most]
        log = RecorderLog(device, len(sizes))
        words = [[numbers.getrandbits(64) for _ in range(size)] for size in sizes]
        work = [
            Work(
                task,
                kernels[abi.Core.AIV],
                [log.address, task, 0, size],
                bytes((ctypes.c_uint64 * size)(*words[task])),
                relative=(2,),
            )
            for task, size in enumerate(sizes)
        ]
        outcome, journal = run_probe(device, probe, kernels, work)
        _expect_ok(outcome, journal)
        _expect_sums(log, words)


def _expect_sums(log: RecorderLog, words: Sequence[Sequence[int]]) -> None:
    for task, total in enumerate(log.read()["sum"]):
        expect(
            int(total) == words_sum(words[task]),
            f"task {task} read other words than the {len(words[task])} in its payload at dispatch",
        )


def check_counters(backend: BackendSubject) -> None:
    """Require a run report to count the tasks, the tasks of each core and the run's copies."""
    sizes = (100, 1, 70_000)

    def copy(platform: abi.Platform) -> None:
        host = ctypes.create_string_buffer(max(sizes))
        device_address = ctypes.c_uint64()
        platform.allocate(platform.self, max(sizes), ctypes.byref(device_address))
        for size in sizes:
            platform.copy_in(platform.self, device_address.value, host, size)
        platform.copy_out(platform.self, host, device_address.value, sizes[0])

    probe = Probe(on_finalise=copy)
    with backend.open() as device:
        kernels = backend.load_recorders(device)
        device.attach(probe)
        log = RecorderLog(device, 90)
        begin_ns = time.monotonic_ns()
        outcome, journal = run_probe(device, probe, kernels, recorder_work(log, kernels, 90))
        wall_ns = time.monotonic_ns() - begin_ns
        _expect_ok(outcome, journal)
        report = outcome.report
        expect(report.tasks == 90, f"90 tasks ran, the report says {report.tasks}")
        per_core = Counter(journal.dispatched.values())
        reported = {core: usage.tasks for core, usage in enumerate(report.cores) if usage.tasks}
        expect(reported == per_core, f"tasks per core: {reported}, dispatched: {dict(per_core)}")
        moved = (report.copies_in, report.bytes_in, report.copies_out, report.bytes_out)
        expect(
            moved == (len(sizes), sum(sizes), 1, sizes[0]),
            f"copies in, bytes in, copies out, bytes out: {moved}, "
            f"made were {(len(sizes), sum(sizes), 1, sizes[0])}",
        )
        expect(report.peak_bytes >= max(sizes), f"peak_bytes is {report.peak_bytes}")
        expect(0 < report.run_ns <= wall_ns, f"run_ns is {report.run_ns} of {wall_ns} ns")


def check_memory_of_a_run(backend: BackendSubject) -> None:
    """Require that what a runtime allocates is gone with the run, and that reserves are zeroed."""
    seen: list[int] = []

    def allocate(platform: abi.Platform) -> None:
        address = ctypes.c_uint64()
        status = platform.allocate(platform.self, 1 << 20, ctypes.byref(address))
        expect(status == abi.Status.OK, f"allocate in run {len(seen)} gave {status}")
        expect(address.value % abi.ALIGNMENT == 0, f"{address.value:#x} is not aligned")
        seen.append(address.value)
        reserved = platform.reserve(platform.self, 100_000)
        expect(reserved and reserved % 4096 == 0, f"reserve() gave {reserved}, no whole page")
        content = ctypes.string_at(reserved, 100_000)
        platform.release(platform.self, reserved, 100_000)
        expect(not any(content), "reserve() gave memory that is not zeroed")
        first = platform.now(platform.self)
        expect(platform.now(platform.self) >= first, "now() went backwards")

    probe = Probe(on_begin=allocate)
    with backend.open() as device:
        device.attach(probe)
        for _ in range(50):
            outcome, journal = run_probe(device, probe, [], [])
            _expect_ok(outcome, journal)
        leaks = device.close()
    expect(leaks.buffers == 0, f"{leaks.buffers} buffers of finished runs are reported as leaks")


def check_unknown_options_are_refused(backend: BackendSubject) -> None:
    """Require that an option that the backend does not know is a usage error which names it."""
    try:
        device = backend.open(no_such_option="1")
    except StatusError as refusal:
        expect(
            refusal.status == abi.Status.USAGE and "no_such_option" in refusal.message,
            f"open(no_such_option=1) answered {refusal}; expected USAGE and the option's name",
        )
    else:
        device.close()
        expect(False, "open(no_such_option=1) was accepted")


def check_missing_files_are_load_errors(backend: BackendSubject) -> None:
    """Require LOAD and the path for a kernel or library that is not there."""
    missing = Path("/nonexistent/conformance.so")
    with backend.open() as device:
        for name, load in (
            ("load_kernel", lambda: device.load_kernel(0, abi.Core.AIV, missing)),
            ("load_library", lambda: device.load_library(missing)),
        ):
            try:
                load()
            except StatusError as refusal:
                expect(
                    refusal.status == abi.Status.LOAD and str(missing) in refusal.message,
                    f"{name} of a missing file answered {refusal}; expected LOAD and the path",
                )
            else:
                expect(False, f"{name} of a missing file answered OK")
        backend.load_recorders(device)


def check_abort(backend: BackendSubject) -> None:
    """Require that an aborted run says ABORTED, and that the next one is all right."""
    probe = Probe()
    with backend.open() as device:
        kernels = backend.load_recorders(device)
        device.attach(probe)
        log = RecorderLog(device, 60)
        probe.load(recorder_work(log, kernels, 60))
        device.start(kernels)
        device.abort()
        device.orchestration_done()
        device.wait()
        outcome = device.finish()
        expect(
            outcome.status == abi.Status.ABORTED,
            f"an aborted run ended with {outcome.status.name}, not ABORTED",
        )
        log.clear()
        _expect_ok(*run_probe(device, probe, kernels, recorder_work(log, kernels, 60)))
        expect(all(log.read()["runs"] == 1), "the run after an aborted one skips tasks")


def check_many_runs(backend: BackendSubject, runs: int = 100) -> None:
    """Require that a device runs again and again, with nothing left over from the run before."""
    probe = Probe()
    with backend.open() as device:
        kernels = backend.load_recorders(device)
        device.attach(probe)
        log = RecorderLog(device, 6)
        for run in range(runs):
            outcome, journal = run_probe(device, probe, kernels, recorder_work(log, kernels, 6))
            _expect_ok(outcome, journal)
            expect(
                outcome.report.tasks == 6, f"run {run} of 6 tasks reports {outcome.report.tasks}"
            )
        expect(all(log.read()["runs"] == runs), f"not every task ran {runs} times in {runs} runs")


class Gate:
    """The memory of the gate kernel: it holds its core until :meth:`open`."""

    def __init__(self, device: NativeDevice, limit_ms: int = _GATE_LIMIT_MS) -> None:
        self._device = device
        self.address = device.allocate(16)
        self._limit_ms = limit_ms
        device.copy_in(self.address, bytes(16))

    def work(self, task: int, kernel: Kernel) -> Work:
        """Give the task that goes through this gate."""
        return Work(task, kernel, [self.address, self._limit_ms])

    def entered(self) -> bool:
        """Whether the kernel has begun."""
        return self._device.copy_out(self.address, 8) == (1).to_bytes(8, "little")

    def await_entered(self) -> None:
        """Return when the kernel has begun; a kernel that never does breaks the contract."""
        deadline = time.monotonic() + self._limit_ms / 1000
        while not self.entered():
            if time.monotonic() > deadline:
                raise ContractError(f"the kernel did not begin within {self._limit_ms} ms")
            time.sleep(0)

    def open(self) -> None:
        """Let the kernel return."""
        self._device.copy_in(self.address + 8, (1).to_bytes(8, "little"))


def check_activity_names_the_kernel(backend: BackendSubject) -> None:
    """Require one odd slot of the activity page while a kernel runs: task, core, func_id."""
    probe = Probe()
    with backend.open() as device:
        kernel = device.load_kernel(5, abi.Core.AIV, backend.kernel("gate", abi.Core.AIV))
        device.attach(probe)
        page = device.activity()
        expect(
            page.magic == abi.ACTIVITY_MAGIC and page.version == abi.ABI_VERSION,
            f"the activity page begins with {page.magic:#x}, version {page.version}",
        )
        gate = Gate(device)
        probe.load([gate.work(77, kernel)])
        device.start([kernel])
        device.orchestration_done()
        waiter = threading.Thread(target=device.wait)
        waiter.start()
        try:
            gate.await_entered()
            running = _running(page)
        finally:
            gate.open()
            waiter.join()
        _expect_ok(device.finish(), probe.journal)
        core = probe.journal.dispatched[77]
        expect(
            running == [(77, 5, core)],
            f"running (task, func_id, core): {running}, expected {[(77, 5, core)]}",
        )
        expect(not _running(page), f"after the run the page still says {_running(page)}")


def _running(page: abi.ActivityPage) -> list[tuple[int, int, int]]:
    slots = page.slot[: page.slots]
    return [(slot.task, slot.func_id, slot.core) for slot in slots if slot.sequence % 2]
