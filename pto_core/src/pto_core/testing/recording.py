"""The log that the recorder kernel writes, as the host reads it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pto_core.testing.native import NativeDevice

RECORD = np.dtype([("runs", "<u8"), ("start", "<u8"), ("end", "<u8"), ("sum", "<u8")])
"""One task: how often it ran, the clock at its start and end, and the sum of its values."""

_CLOCK_BYTES = 64


def sum_of_values(values: Sequence[int]) -> int:
    """Return the sum that the kernel computes for ``values``."""
    total = 0
    for value in values:
        total = (total * 31 + value) % 2**64
    return total


class RecorderLog:
    """A log of ``tasks`` records in device memory."""

    def __init__(self, device: NativeDevice, tasks: int) -> None:
        self._device = device
        self._bytes = tasks * RECORD.itemsize
        self.tasks = tasks
        self.address = device.allocate(_CLOCK_BYTES + self._bytes)
        self.clear()

    def clear(self) -> None:
        """Clear the log."""
        self._device.copy_in(self.address, bytes(_CLOCK_BYTES + self._bytes))

    def arguments(self, index: int, values: Sequence[int] = ()) -> list[int]:
        """Return the arguments of task ``index``, including its values."""
        return [self.address, index, 0, len(values), *values]

    def read(self) -> np.ndarray[Any, Any]:
        """Return the records, one per task."""
        raw = self._device.copy_out(self.address + _CLOCK_BYTES, self._bytes)
        return np.frombuffer(raw, dtype=RECORD)

    def free(self) -> None:
        """Free the log's memory."""
        self._device.free(self.address)
