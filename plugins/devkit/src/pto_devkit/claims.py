"""Check the claims of a backend, with one check for each capability."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from typing import Any

from pto_devkit import abi
from pto_devkit.checks import expect
from pto_devkit.native import RecorderLog, StatusError, entries, payload_arguments
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

CAPABILITY_FLAGS = {
    "threads": abi.BackendFlag.THREADS,
    "deterministic": abi.BackendFlag.DETERMINISTIC,
    "checking": abi.BackendFlag.CHECKING,
    "callbacks": abi.BackendFlag.CALLBACKS,
    "planning": abi.BackendFlag.PLANNING,
    "activity": abi.BackendFlag.ACTIVITY,
    "dump": abi.BackendFlag.DUMP,
    "streams": abi.BackendFlag.STREAMS,
}
"""For each capability that a plugin may claim, the flag in its library's table."""

_SEEDS = 16
_FRESH_PROCESS_LIMIT_S = 60
_STUCK_MS = 5000


def check_table(backend: BackendSubject) -> None:
    """Require that the library's table has the ABI's version and size and no missing entry.

    It has ``wait_stream`` if and only if the backend has the capability ``streams``.
    """
    table = backend.native.table
    expect(table.abi_version == abi.ABI_VERSION, f"abi_version is {table.abi_version}")
    expect(
        table.struct_size >= ctypes.sizeof(abi.BackendApi),
        f"struct_size is {table.struct_size}, the table has {ctypes.sizeof(abi.BackendApi)} bytes",
    )
    missing = {name for name in entries(abi.BackendApi) if not getattr(table, name)}
    absent = set() if backend.native.flags & abi.BackendFlag.STREAMS else {"wait_stream"}
    expect(missing >= absent, "the table has wait_stream, but not the capability STREAMS")
    expect(missing <= absent, f"the table has no {', '.join(sorted(missing - absent))}")


def check_claims_agree(backend: BackendSubject) -> None:
    """Require that the plugin claims exactly the capabilities whose flags its library has set."""
    unknown = sorted(set(backend.plugin.capabilities) - set(CAPABILITY_FLAGS))
    expect(
        not unknown, f"unknown capabilities: {unknown}; expected some of {sorted(CAPABILITY_FLAGS)}"
    )
    for capability, flag in CAPABILITY_FLAGS.items():
        named, has = capability in backend.plugin.capabilities, bool(backend.native.flags & flag)
        expect(
            named == has,
            f"{capability!r}: the plugin {'claims' if named else 'does not claim'} it, "
            f"the library's table {'does' if has else 'does not'}",
        )


def check_threads(backend: BackendSubject) -> None:
    """Require that a ``threads`` backend runs a kernel before the caller waits."""
    probe = Probe(backend)
    with backend.open() as device:
        kernel = device.load_kernel(0, abi.Core.AIV, backend.kernel("gate", abi.Core.AIV))
        device.attach(probe)
        gate = Gate(device)
        device.start([kernel], probe.load(device, [gate.work(1, kernel)]))
        device.orchestration_done()
        try:
            gate.await_entered()
        finally:
            gate.open()
            device.wait()
            outcome = device.finish()
        expect(outcome.status == abi.Status.OK, f"the run ended with {outcome.status.name}")


def check_lost_device(backend: BackendSubject) -> None:
    """Require that a ``threads`` backend stops waiting for a kernel after its device is lost.

    No call waits for the kernel then, and every later call returns LOST.
    """
    probe = Probe(backend)
    with backend.open() as device:
        kernel = device.load_kernel(0, abi.Core.AIV, backend.kernel("gate", abi.Core.AIV))
        device.attach(probe)
        gate = Gate(device, _STUCK_MS)
        device.start([kernel], probe.load(device, [gate.work(1, kernel)]))
        device.orchestration_done()
        gate.await_entered()
        device.abort(abi.Status.TIMEOUT, lost=True)
        device.wait()
        outcome = device.finish()
        expect(outcome.status == abi.Status.LOST, f"finish() of a lost device: {outcome.status!r}")
        try:
            device.start([kernel])
        except StatusError as refusal:
            expect(
                refusal.status == abi.Status.LOST, f"start() of a lost device returned {refusal}"
            )
        else:
            expect(False, "start() on a lost device was accepted")


def check_callbacks(backend: BackendSubject, tasks: int = 50) -> None:
    """Require that a ``callbacks`` backend calls Python functions with their payload and core."""
    seen: dict[int, list[tuple[int, int]]] = {}

    def record(payload: Any, core: int, _error: Any) -> int:
        header = payload.contents
        seen.setdefault(header.task, []).append((core, payload_arguments(header)[0]))
        return 0

    probe = Probe(backend)
    with backend.open() as device:
        kernels = [device.load_callback(core, core, record) for core in abi.Core]
        device.attach(probe)
        work = [Work(task, kernels[task % 2], [task * 11]) for task in range(tasks)]
        outcome, journal = run_probe(device, probe, kernels, work)
        expect(outcome.status == abi.Status.OK, f"the run ended with {outcome.message}")
        for task in range(tasks):
            wanted = [(journal.dispatched[task], task * 11)]
            expect(
                seen.get(task) == wanted,
                f"task {task} was called with (core, argument) {seen.get(task)}, expected {wanted}",
            )


def check_kernel_faults(backend: BackendSubject) -> None:
    """Require that a failing kernel ends the run with KERNEL and the kernel's text, task and core.

    The next run on the device works.
    """

    def fail(_payload: Any, _core: int, error: Any) -> int:
        error.contents.status = abi.Status.KERNEL
        error.contents.message = b"the kernel of the kit fails on purpose"
        return int(abi.Status.KERNEL)

    probe = Probe(backend)
    with backend.open() as device:
        failing = device.load_callback(9, abi.Core.AIV, fail)
        kernels = backend.load_recorders(device)
        device.attach(probe)
        outcome, journal = run_probe(device, probe, [failing], [Work(3, failing)])
        named = (outcome.status, outcome.error.task, outcome.error.core, outcome.error.func_id)
        wanted = (abi.Status.KERNEL, 3, journal.dispatched[3], 9)
        expect(named == wanted, f"status, task, core, func_id: {named}, expected {wanted}")
        expect("on purpose" in outcome.message, f"the kernel's message is lost: {outcome.message}")
        log = RecorderLog(device, 20)
        outcome, _ = run_probe(device, probe, kernels, recorder_work(log, kernels, 20))
        expect(
            outcome.status == abi.Status.OK and all(log.read()["runs"] == 1),
            f"the run after a failed one: {outcome.status.name} {outcome.message}",
        )


def check_shape_is_deterministic(backend: BackendSubject) -> None:
    """Require that a device reports ``is_deterministic`` in deterministic mode, and only then."""
    given: tuple[tuple[dict[str, Any], int], ...] = (({"mode": "deterministic"}, 1), ({}, 0))
    for options, expected in given:
        with backend.open(**options) as device:
            reported = device.shape.is_deterministic
            expect(
                reported == expected,
                f"open() with the options {options} reported is_deterministic={reported}; "
                f"expected {expected}",
            )


def check_planning_memory(backend: BackendSubject) -> None:
    """Require that a ``planning`` device reserves sparse memory and counts the pages in use."""
    some = 1 << 20
    probe = Probe(backend)
    with backend.open() as device:
        device.attach(probe)
        outcome, journal = run_probe(
            device, probe, [], [], experiment=Experiment.PLANNING, operands=(1 << 34, some)
        )
        expect_all_right(outcome, journal)
        before, after, allows, is_reserved = journal.answers[:4]
        expect(is_reserved, "reserve() of 16 GiB of sparse memory returned NULL")
        expect(before == 0, f"{before} bytes of new memory are reported as touched")
        expect(0 < after < some, f"after a write of one byte, touched() reported {after} of {some}")
        expect(
            allows == device.shape.has_planning == 1,
            f"pto_platform.planning is {allows}, has_planning of the shape "
            f"{device.shape.has_planning}; expected 1",
        )


def trace_hash(backend: BackendSubject, seed: int, tasks: int = 40) -> int:
    """Return the trace hash of a fixed run in deterministic mode with ``seed``."""
    probe = Probe(backend)
    with backend.open(mode="deterministic", seed=seed) as device:
        kernels = backend.load_recorders(device)
        device.attach(probe)
        log = RecorderLog(device, tasks)
        outcome, _ = run_probe(
            device, probe, kernels, recorder_work(log, kernels, tasks), block_dim=4
        )
        expect(outcome.status == abi.Status.OK, f"seed {seed}: the run ended: {outcome.message}")
        return int(outcome.report.trace_hash)


def check_seed_repeats_trace(backend: BackendSubject) -> None:
    """Require that equal seeds have the same nonzero trace hash, even in another process."""
    first = trace_hash(backend, 7)
    expect(first, "the run report of deterministic mode has no trace hash")
    for _ in range(3):
        again = trace_hash(backend, 7)
        expect(again == first, f"seed 7 produced the trace {first:#x}, then {again:#x}")
    answer = subprocess.run(
        [sys.executable, "-m", "pto_devkit.trace", backend.name, "7"],
        capture_output=True,
        text=True,
        timeout=_FRESH_PROCESS_LIMIT_S,
        check=False,
    )
    expect(answer.returncode == 0, f"seed 7 in a fresh process: {answer.stderr}")
    expect(
        int(answer.stdout) == first,
        f"seed 7 produced the trace {first:#x} here and {int(answer.stdout):#x} in a fresh process",
    )


def check_seeds_differ(backend: BackendSubject) -> None:
    """Require that different seeds produce different orders, in at least three of four cases."""
    hashes = {trace_hash(backend, seed) for seed in range(_SEEDS)}
    expect(
        4 * len(hashes) >= 3 * _SEEDS,
        f"{_SEEDS} seeds produced only {len(hashes)} different traces: the seed has little effect",
    )


def check_red_zones(backend: BackendSubject) -> None:
    """Require that a checked run ends with ADDRESS if a kernel writes past its buffer."""
    probe = Probe(backend)
    with backend.open(check=1) as device:
        kernels = backend.load_recorders(device)
        device.attach(probe)
        log = RecorderLog(device, 4)
        past_the_end = Work(0, kernels[0], log.arguments(log.tasks))
        outcome, _ = run_probe(device, probe, kernels, [past_the_end])
        expect(
            outcome.status == abi.Status.ADDRESS and outcome.message,
            f"a kernel wrote past its buffer, the run ended with {outcome.status.name}",
        )


def check_wrong_values_are_refused(backend: BackendSubject) -> None:
    """Require that the checks refuse freed memory and accept live buffers.

    ``check_value`` also accepts values that are not addresses. ``check_range`` refuses such values,
    and ranges that are not inside one buffer.
    """
    probe = Probe(backend)
    with backend.open(check=1) as device:
        device.attach(probe)
        live, freed = device.allocate(4096), device.allocate(4096)
        device.free(freed)
        values = {"live": live, "inside": live + 100, "number": 12345, "zero": 0, "freed": freed}
        ranges = {"whole": (live, 4096), "end": (live + 4000, 96), "over": (live + 4000, 97)}
        ranges.update(number=(12345, 1), freed=(freed, 1))
        spans = [word for pair in ranges.values() for word in pair]
        operands = (len(values), *values.values(), *spans)
        outcome, journal = run_probe(
            device, probe, [], [], experiment=Experiment.CHECKS, operands=operands
        )
        expect(outcome.status == abi.Status.OK, f"the run ended with {outcome.message}")
    is_checking, *answers = journal.answers
    expect(is_checking, "platform.checking is 0 for a device opened with check=1")
    refused = {"freed"}
    _expect_refused("check_value", dict(zip(values, answers, strict=False)), refused)
    refused = {"over", "number", "freed"}
    _expect_refused("check_range", dict(zip(ranges, answers[len(values) :], strict=False)), refused)


def _expect_refused(call: str, answers: dict[str, int], refused: set[str]) -> None:
    wanted = {
        name: int(abi.Status.ADDRESS if name in refused else abi.Status.OK) for name in answers
    }
    expect(answers == wanted, f"{call} returned {answers}, expected {wanted}")
