"""A runtime variant in C++ that observes the backend which drives it.

It dispatches a list of independent tasks, one at a time to each free core of the matching type, and
counts the completions. After each dispatch it overwrites its own copy of the payload, as the ABI
permits. Its source is ``probe.cpp``. It runs where the backend runs variants: in this process, or
on the device, for which the backend's recipe builds it.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from pto_devkit import abi
from pto_devkit.checks import ContractError, expect
from pto_devkit.native import (
    RUN_LIMIT_S,
    Kernel,
    NativeDevice,
    NativeRuntime,
    RecorderLog,
    RunOutcome,
)
from pto_devkit.subjects import BackendSubject

_ANSWERS = 16
_NO_CORE = 2**32 - 1


class Experiment(IntEnum):
    """A use of the platform table in a run. ``probe.cpp`` defines the operands and answers."""

    NONE = 0
    COPIES = 1
    MEMORY = 2
    PLANNING = 3
    CHECKS = 4


@dataclass(frozen=True)
class Work:
    """A task for the probe. The kernel receives ``arguments``.

    An argument whose index is in ``relative`` is a byte offset into ``blob``, which follows the
    arguments in the payload.
    """

    task: int
    kernel: Kernel
    arguments: Sequence[int] = ()
    blob: bytes = b""
    relative: Sequence[int] = ()

    def payload(self) -> bytes:
        """Return the payload in the layout of the ABI."""
        start = ctypes.sizeof(abi.Payload) + 8 * len(self.arguments)
        scalars = [
            value + start if index in self.relative else value
            for index, value in enumerate(self.arguments)
        ]
        header = abi.Payload(
            kernel=self.kernel.address,
            task=self.task,
            func_id=self.kernel.func_id,
            num_args=len(scalars),
            relative_args=sum(1 << index for index in self.relative),
        )
        return bytes(header) + bytes((ctypes.c_uint64 * len(scalars))(*scalars)) + self.blob


@dataclass
class Journal:
    """The events of one run that the probe has recorded."""

    topology: abi.Topology
    answers: list[int]
    """The answers of the experiment."""
    dispatched: dict[int, int] = field(default_factory=dict)
    """The core of each dispatched task."""
    completed: list[tuple[int, int]] = field(default_factory=list)
    """A pair (task, core) for each completion that the backend reported."""
    violations: list[str] = field(default_factory=list)
    """The calls of the backend that the ABI forbids."""


class _JournalHead(ctypes.Structure):
    _fields_ = (
        ("topology", abi.Topology),
        ("unexpected", ctypes.c_uint64),
        ("unexpected_core", ctypes.c_uint64),
        ("stalls", ctypes.c_uint64),
        ("answers", ctypes.c_uint64 * _ANSWERS),
    )


class _TaskResult(ctypes.Structure):
    _fields_ = (("core", ctypes.c_uint32), ("completions", ctypes.c_uint32))


class Probe(NativeRuntime):
    """The variant, built for a backend. It serves one device at a time.

    Before each run, :meth:`load` returns the arguments of the run. After it, :meth:`read` returns
    the journal.
    """

    def __init__(self, backend: BackendSubject) -> None:
        library, artefacts = backend.probe_files()
        super().__init__(library, "conformance_probe", artefacts)
        self._work: list[Work] = []
        self._journal = 0

    def load(
        self,
        device: NativeDevice,
        work: Sequence[Work],
        experiment: Experiment = Experiment.NONE,
        operands: Sequence[int] = (),
    ) -> list[int]:
        """Allocate the journal on the device; return the arguments of a run of ``work``."""
        self._work = list(work)
        self._journal = device.allocate(self.journal_bytes())
        device.copy_in(self._journal, bytes(self.journal_bytes()))  # a run may end before it begins
        arguments = [self._journal, experiment, len(operands), len(work), *operands]
        for task in work:
            payload = task.payload()
            padded = payload.ljust(-(-len(payload) // 8) * 8, b"\0")
            arguments.append(task.kernel.core | len(payload) << 32)
            arguments.extend((ctypes.c_uint64 * (len(padded) // 8)).from_buffer_copy(padded))
        return arguments

    def journal_bytes(self) -> int:
        """Return the size of the journal, which the probe copies to the device in each run."""
        return ctypes.sizeof(_JournalHead) + len(self._work) * ctypes.sizeof(_TaskResult)

    def read(self, device: NativeDevice) -> Journal:
        """Return the journal of the run, which has ended, and free its memory."""
        raw = device.copy_out(self._journal, self.journal_bytes())
        device.free(self._journal)
        head = _JournalHead.from_buffer_copy(raw)
        results = (_TaskResult * len(self._work)).from_buffer_copy(raw, ctypes.sizeof(head))
        journal = Journal(head.topology, list(head.answers))
        for work, result in zip(self._work, results, strict=True):
            if result.core != _NO_CORE:
                journal.dispatched[work.task] = result.core
                journal.completed.extend([(work.task, result.core)] * result.completions)
        if head.unexpected:
            journal.violations.append(
                f"poll() reported a core that had no task {head.unexpected} times, "
                f"the last time core {head.unexpected_core}"
            )
        if head.stalls:
            journal.violations.append("the backend reported a stall although tasks can complete")
        return journal


# ---- a run of a backend under the probe ----

_GATE_LIMIT_MS = 30_000


def run_probe(
    device: NativeDevice,
    probe: Probe,
    kernels: Sequence[Kernel],
    work: Sequence[Work],
    *,
    experiment: Experiment = Experiment.NONE,
    operands: Sequence[int] = (),
    block_dim: int = 0,
    aicpu_thread_num: int = 3,
) -> tuple[RunOutcome, Journal]:
    """Run ``work`` on a device with ``probe`` attached. Return the outcome and its journal."""
    arguments = probe.load(device, work, experiment, operands)
    device.start(kernels, arguments, block_dim=block_dim, aicpu_thread_num=aicpu_thread_num)
    device.orchestration_done()
    device.wait()
    return device.finish(), probe.read(device)


def recorder_work(log: RecorderLog, kernels: Sequence[Kernel], tasks: int) -> list[Work]:
    """Return ``tasks`` recorder tasks, two thirds of them for AIV. Each task adds four values."""
    return [
        Work(
            task,
            kernels[abi.Core.AIC if task % 3 == 0 else abi.Core.AIV],
            log.arguments(task, _values_of(task)),
        )
        for task in range(tasks)
    ]


def _values_of(task: int) -> list[int]:
    return [task, task * 7 + 1, task ^ 0x55, 2**63 + task]


def expect_all_right(outcome: RunOutcome, journal: Journal) -> None:
    """Raise ContractError unless the run succeeded and the probe recorded no violation."""
    expect(not journal.violations, "; ".join(journal.violations))
    expect(
        outcome.status == abi.Status.OK,
        f"a run without a fault ended with {outcome.status.name}: {outcome.message}",
    )


class Gate:
    """The memory of the gate kernel, which occupies its core until :meth:`open` is called."""

    def __init__(self, device: NativeDevice, limit_ms: int = _GATE_LIMIT_MS) -> None:
        self._device = device
        self.address = device.allocate(16)
        self._limit_ms = limit_ms
        device.copy_in(self.address, bytes(16))

    def work(self, task: int, kernel: Kernel) -> Work:
        """Return a task that waits at this gate."""
        return Work(task, kernel, [self.address, self._limit_ms])

    def entered(self) -> bool:
        """Return whether the kernel has begun."""
        return self._device.copy_out(self.address, 8) == (1).to_bytes(8, "little")

    def await_entered(self) -> None:
        """Wait until the kernel has begun. Raises ContractError if it does not begin in time."""
        deadline = time.monotonic() + RUN_LIMIT_S
        while not self.entered():
            if time.monotonic() > deadline:
                raise ContractError(f"the kernel did not begin within {RUN_LIMIT_S} s")
            time.sleep(0)

    def open(self) -> None:
        """Let the kernel end."""
        self._device.copy_in(self.address + 8, (1).to_bytes(8, "little"))
