"""The log in device memory that the recorder kernel writes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pto_devkit.native import NativeDevice

RECORD = np.dtype([("runs", "<u8"), ("start", "<u8"), ("end", "<u8"), ("sum", "<u8")])
"""The record of one task: how often it ran, its start and end times, and the sum of its values."""

_CLOCK_BYTES = 64


def sum_of_values(values: Sequence[int]) -> int:
    """Return the sum that the recorder kernel computes for ``values``."""
    total = 0
    for value in values:
        total = (total * 31 + value) % 2**64
    return total


class RecorderLog:
    """A log in device memory with one record for each of ``tasks`` tasks."""

    def __init__(self, device: NativeDevice, tasks: int) -> None:
        self._device = device
        self._bytes = tasks * RECORD.itemsize
        self.tasks = tasks
        self.address = device.allocate(_CLOCK_BYTES + self._bytes)
        self.clear()

    def clear(self) -> None:
        """Reset all records to zero."""
        self._device.copy_in(self.address, bytes(_CLOCK_BYTES + self._bytes))

    def arguments(self, index: int, values: Sequence[int] = ()) -> list[int]:
        """Return the arguments of the kernel for task ``index``, with its values at the end."""
        return [self.address, index, 0, len(values), *values]

    def read(self) -> np.ndarray[Any, Any]:
        """Return the records, one per task."""
        raw = self._device.copy_out(self.address + _CLOCK_BYTES, self._bytes)
        return np.frombuffer(raw, dtype=RECORD)

    def free(self) -> None:
        """Free the memory of the log."""
        self._device.free(self.address)
