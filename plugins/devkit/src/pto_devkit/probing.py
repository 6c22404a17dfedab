"""Run a backend under the probe, and provide a kernel that waits until it is released."""

from __future__ import annotations

import time
from collections.abc import Sequence

from pto_devkit import abi
from pto_devkit.failure import ContractError, expect
from pto_devkit.native import RUN_LIMIT_S, Kernel, NativeDevice, Outcome
from pto_devkit.probe import Experiment, Journal, Probe, Work
from pto_devkit.recording import RecorderLog

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
) -> tuple[Outcome, Journal]:
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


def expect_all_right(outcome: Outcome, journal: Journal) -> None:
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
        """Whether the kernel has begun."""
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
