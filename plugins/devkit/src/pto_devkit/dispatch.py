"""Check the cores of a backend, its dispatch and its completions with a :class:`Probe`."""

from __future__ import annotations

import ctypes
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from pto_devkit import abi
from pto_devkit.checks import expect, random_numbers
from pto_devkit.native import RecorderLog, StatusError, sum_of_values
from pto_devkit.probe import (
    Experiment,
    Gate,
    Probe,
    Work,
    expect_all_right,
    recorder_work,
    run_probe,
)
from pto_devkit.subjects import BackendSubject


def check_each_task_runs_once(backend: BackendSubject, tasks: int = 300) -> None:
    """Require that every dispatched task has run exactly once when the run ends."""
    probe = Probe(backend)
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
            expect_all_right(outcome, journal)
            for task, runs in enumerate(log.read()["runs"]):
                expect(
                    runs == 1, f"task {task} of {tasks} ran {runs} times (block_dim={block_dim})"
                )


def check_completions_are_reported_once(backend: BackendSubject) -> None:
    """Require ``poll`` to report every finished core once, and no other core.

    The check uses one run with many tasks for each core, and many runs with fewer tasks than cores.
    """
    probe = Probe(backend)
    with backend.open() as device:
        kernels = backend.load_recorders(device)
        device.attach(probe)
        log = RecorderLog(device, 300)
        for tasks in (300, *([6] * 60)):
            outcome, journal = run_probe(device, probe, kernels, recorder_work(log, kernels, tasks))
            expect_all_right(outcome, journal)
            expect(
                sorted(journal.completed) == sorted(journal.dispatched.items()),
                f"{len(journal.dispatched)} tasks were dispatched, "
                f"{len(journal.completed)} completions reported; they differ",
            )


def check_payload_is_copied(backend: BackendSubject, seed: int | None = None) -> None:
    """Require that a core receives a copy of the payload, made before ``dispatch`` returns.

    The check uses up to the largest number of arguments.
    """
    with random_numbers(seed) as numbers, backend.open() as device:
        kernels = backend.load_recorders(device)
        probe = Probe(backend)
        device.attach(probe)
        sizes = [1, 12, 37, abi.MAX_KERNEL_ARGS - 4] * 20
        log = RecorderLog(device, len(sizes))
        values = [[numbers.getrandbits(64) for _ in range(size)] for size in sizes]
        work = [
            Work(task, kernels[task % 2], log.arguments(task, values[task]))
            for task in range(len(sizes))
        ]
        outcome, journal = run_probe(device, probe, kernels, work)
        expect_all_right(outcome, journal)
        _expect_sums(log, values)


def check_relative_arguments(backend: BackendSubject, seed: int | None = None) -> None:
    """Require that ``relative_args`` reach the kernel as addresses inside its payload copy."""
    with random_numbers(seed) as numbers, backend.open() as device:
        kernels = backend.load_recorders(device)
        probe = Probe(backend)
        device.attach(probe)
        most = (abi.MAX_PAYLOAD - ctypes.sizeof(abi.Payload) - 8 * 4) // 8
        sizes = [1, 5, 100, most]
        log = RecorderLog(device, len(sizes))
        values = [[numbers.getrandbits(64) for _ in range(size)] for size in sizes]
        work = [
            Work(
                task,
                kernels[abi.Core.AIV],
                [log.address, task, 0, size],
                bytes((ctypes.c_uint64 * size)(*values[task])),
                relative=(2,),
            )
            for task, size in enumerate(sizes)
        ]
        outcome, journal = run_probe(device, probe, kernels, work)
        expect_all_right(outcome, journal)
        _expect_sums(log, values)


def _expect_sums(log: RecorderLog, values: Sequence[Sequence[int]]) -> None:
    for task, total in enumerate(log.read()["sum"]):
        expect(
            int(total) == sum_of_values(values[task]),
            f"task {task} did not read the {len(values[task])} values that were in its payload",
        )


def check_counters(backend: BackendSubject) -> None:
    """Require that a run report counts all tasks, the tasks of each core, and the run's copies."""
    sizes = (100, 1, 70_000)
    probe = Probe(backend)
    with backend.open() as device:
        kernels = backend.load_recorders(device)
        device.attach(probe)
        log = RecorderLog(device, 90)
        begin_ns = time.monotonic_ns()
        outcome, journal = run_probe(
            device,
            probe,
            kernels,
            recorder_work(log, kernels, 90),
            experiment=Experiment.COPIES,
            operands=sizes,
        )
        wall_ns = time.monotonic_ns() - begin_ns
        expect_all_right(outcome, journal)
        report = outcome.report
        expect(report.tasks == 90, f"90 tasks ran, the report says {report.tasks}")
        per_core = Counter(journal.dispatched.values())
        reported = {core: usage.tasks for core, usage in enumerate(report.cores) if usage.tasks}
        expect(reported == per_core, f"tasks per core: {reported}, dispatched: {dict(per_core)}")
        moved = (report.copies_in, report.bytes_in, report.copies_out, report.bytes_out)
        copied = (*sizes, probe.journal_bytes())
        wanted = (len(copied), sum(copied), 1, sizes[0])
        expect(
            moved == wanted,
            f"copies in, bytes in, copies out, bytes out: {moved}, expected {wanted}",
        )
        expect(report.peak_bytes >= max(sizes), f"peak_bytes is {report.peak_bytes}")
        expect(
            0 < report.run_ns <= wall_ns,
            f"run_ns is {report.run_ns}; the caller measured {wall_ns} ns",
        )


def check_memory_of_a_run(backend: BackendSubject) -> None:
    """Require that the end of a run frees its memory, and that reserved memory contains zeros."""
    probe = Probe(backend)
    with backend.open() as device:
        device.attach(probe)
        for run in range(50):
            outcome, journal = run_probe(device, probe, [], [], experiment=Experiment.MEMORY)
            expect_all_right(outcome, journal)
            status, address, not_zero, offset, is_backwards, is_reserved = journal.answers[:6]
            expect(is_reserved, f"reserve() in run {run} returned NULL")
            expect(status == abi.Status.OK, f"allocate() in run {run} returned {status}")
            expect(address % abi.ALIGNMENT == 0, f"the address {address:#x} is not aligned")
            expect(offset == 0, "reserve() returned memory that does not start with a page")
            expect(not_zero == 0, f"{not_zero} bytes of the memory of reserve() are not zero")
            expect(not is_backwards, "now() went backwards")
        leaks = device.close()
    expect(leaks.buffers == 0, f"{leaks.buffers} buffers of finished runs are reported as leaks")


def check_unknown_options_are_refused(backend: BackendSubject) -> None:
    """Require that an unknown option causes a usage error that names the option."""
    try:
        device = backend.open(no_such_option="1")
    except StatusError as refusal:
        expect(
            refusal.status == abi.Status.USAGE and "no_such_option" in refusal.message,
            f"open(no_such_option=1) returned {refusal}; expected USAGE and the option's name",
        )
    else:
        device.close()
        expect(False, "open(no_such_option=1) was accepted")


def check_missing_files_are_load_errors(backend: BackendSubject) -> None:
    """Require the status LOAD and a message with the path for a missing kernel or library."""
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
                    f"{name} of a missing file returned {refusal}; expected LOAD and the path",
                )
            else:
                expect(False, f"{name} of a missing file returned OK")
        backend.load_recorders(device)


def check_abort(backend: BackendSubject) -> None:
    """Require that an aborted run returns ABORTED, and that the next run succeeds."""
    probe = Probe(backend)
    with backend.open() as device:
        kernels = backend.load_recorders(device)
        device.attach(probe)
        log = RecorderLog(device, 60)
        device.start(kernels, probe.load(device, recorder_work(log, kernels, 60)))
        device.abort()
        device.orchestration_done()
        device.wait()
        outcome = device.finish()
        probe.read(device)
        expect(
            outcome.status == abi.Status.ABORTED,
            f"an aborted run ended with {outcome.status.name}, not ABORTED",
        )
        log.clear()
        expect_all_right(*run_probe(device, probe, kernels, recorder_work(log, kernels, 60)))
        expect(
            all(log.read()["runs"] == 1), "the run after an aborted run did not run each task once"
        )


def check_many_runs(backend: BackendSubject, runs: int = 100) -> None:
    """Require that a device can run repeatedly without effects of earlier runs."""
    probe = Probe(backend)
    with backend.open() as device:
        kernels = backend.load_recorders(device)
        device.attach(probe)
        log = RecorderLog(device, 6)
        for run in range(runs):
            outcome, journal = run_probe(device, probe, kernels, recorder_work(log, kernels, 6))
            expect_all_right(outcome, journal)
            expect(
                outcome.report.tasks == 6,
                f"run {run} had 6 tasks but reports {outcome.report.tasks}",
            )
        expect(all(log.read()["runs"] == runs), f"not every task ran {runs} times in {runs} runs")


def check_activity_names_the_kernel(backend: BackendSubject) -> None:
    """Require one odd slot of the activity page during a kernel: its task, core and func_id."""
    probe = Probe(backend)
    with backend.open() as device:
        kernel = device.load_kernel(5, abi.Core.AIV, backend.kernel("gate", abi.Core.AIV))
        device.attach(probe)
        page = device.activity()
        expect(
            page.magic == abi.ACTIVITY_MAGIC and page.version == abi.ACTIVITY_VERSION,
            f"the activity page begins with {page.magic:#x}, version {page.version}",
        )
        gate = Gate(device)
        device.start([kernel], probe.load(device, [gate.work(77, kernel)]))
        device.orchestration_done()
        waiter = threading.Thread(target=device.wait)
        waiter.start()
        try:
            gate.await_entered()
            running = _running(page)
        finally:
            gate.open()
            waiter.join()
        outcome, journal = device.finish(), probe.read(device)
        expect_all_right(outcome, journal)
        core = journal.dispatched[77]
        expect(
            running == [(77, 5, core)],
            f"running (task, func_id, core): {running}, expected {[(77, 5, core)]}",
        )
        expect(not _running(page), f"after the run the page still shows {_running(page)}")


def _running(page: abi.ActivityPage) -> list[tuple[int, int, int]]:
    slots = page.slot[: page.slots]
    return [(slot.task, slot.func_id, slot.core) for slot in slots if slot.sequence % 2]
