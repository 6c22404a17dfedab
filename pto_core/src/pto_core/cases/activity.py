"""The parent's view of the activity page, which lists running kernels (``pto/abi/activity.h``)."""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass

PAGE_BYTES = 4096
_MAGIC = 0x41435450
_HEADER = struct.Struct("<IIIiI")
_SLOT = struct.Struct("<QQiiQQQ")
_FIRST_SLOT = 128
_SLOT_BYTES = 64
_RING_IDS = 256
"""Capability bit of a runtime (``pto/abi/runtime.h``): task ids combine a ring and a number."""
_RINGS = 4
_SLOTS = (PAGE_BYTES - _FIRST_SLOT) // _SLOT_BYTES


@dataclass(frozen=True)
class RunningKernel:
    """A kernel that was running when the page was read; ``sequence`` counts uses of ``slot``."""

    slot: int
    sequence: int
    task: int
    func_id: int
    core: int
    signal: int
    """The fatal signal that the kernel's thread received; 0 if it received none."""
    has_ring_id: bool = False
    """Whether the task ids of its runtime contain the number of a ring."""

    @property
    def task_name(self) -> str:
        """The name of the task in messages: its number and, if it is known, its ring."""
        if not self.has_ring_id:
            return f"task {self.task}"
        return f"task {self.task // _RINGS} of ring {self.task % _RINGS}"


class ActivityPage:
    """A page of anonymous shared memory; the child inherits its ``descriptor``."""

    def __init__(self) -> None:
        self.descriptor = os.memfd_create("pto-activity", os.MFD_CLOEXEC)
        try:
            os.ftruncate(self.descriptor, PAGE_BYTES)
            self._page = mmap.mmap(self.descriptor, PAGE_BYTES)
        except BaseException:
            os.close(self.descriptor)
            raise

    def running(self) -> list[RunningKernel]:
        """List the running kernels. The list is empty if the backend does not use the page."""
        has_ring_ids = bool(_HEADER.unpack_from(self._page, 0)[4] & _RING_IDS)
        found = []
        for slot, offset in enumerate(self._slot_offsets()):
            sequence, task, func_id, core, _, fatal, _ = _SLOT.unpack_from(self._page, offset)
            if sequence % 2:
                running = RunningKernel(slot, sequence, task, func_id, core, fatal, has_ring_ids)
                found.append(running)
        return found

    def has_orchestration_crashed(self) -> bool:
        """Return whether a thread that ran the C++ orchestration received a fatal signal."""
        slots = (_SLOT.unpack_from(self._page, offset) for offset in self._slot_offsets())
        return any(slot[0] % 2 == 0 and slot[5] and slot[6] for slot in slots)

    def changes(self) -> int | None:
        """Return how often kernels started or ended; None if the backend does not use the page."""
        offsets = self._slot_offsets()
        if not offsets:
            return None
        sequences: list[int] = [_SLOT.unpack_from(self._page, offset)[0] for offset in offsets]
        return sum(sequences)

    def _slot_offsets(self) -> list[int]:
        """Return the offset of each slot; empty if the backend does not use the page."""
        magic, _version, slots, _device, _capabilities = _HEADER.unpack_from(self._page, 0)
        count = min(slots, _SLOTS) if magic == _MAGIC else 0
        return [_FIRST_SLOT + slot * _SLOT_BYTES for slot in range(count)]

    def close(self) -> None:
        """Release the page; a second call has no effect."""
        if self.descriptor >= 0:
            self._page.close()
            os.close(self.descriptor)
            self.descriptor = -1

    def __enter__(self) -> ActivityPage:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()


def core_name(core: int, blocks: int | None) -> str:
    """Return the name of a core, such as ``AIC 3``; without ``blocks``, only its number."""
    if not blocks:
        return f"core {core}"
    return f"AIC {core}" if core < blocks else f"AIV {core - blocks}"


def describe(kernel: RunningKernel, names: Mapping[int, str], blocks: int | None) -> str:
    """Return a phrase that names a running kernel, its task and its core."""
    name = names.get(kernel.func_id, "unknown")
    return (
        f"kernel {name!r} (func_id {kernel.func_id}), {kernel.task_name}, on "
        f"{core_name(kernel.core, blocks)}"
    )
