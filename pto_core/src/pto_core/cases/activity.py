"""The activity page of a device (``pto/abi/activity.h``): the kernels that run, and its state.

The parent of a case reads its page to explain the end of the child. ``pto top`` reads all pages.
"""

from __future__ import annotations

import mmap
import os
import struct
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

PAGE_BYTES = 20480
PAGE_VERSION = 1
_MAGIC = 0x41435450
_HEADER = struct.Struct("<IIIiIiQQI4x48s")
_SLOT = struct.Struct("<QQiiQQQQQ")
_KERNEL = struct.Struct("<Q56s")
_FIRST_SLOT = 128
_SLOT_BYTES = 64
_SLOTS = 190
_FIRST_KERNEL = 12288
_KERNELS = 64
_TEXT = 16384
_ASKED = 24  # the offsets of asked_ns and text_sequence
_TEXT_SEQUENCE = 32
_READS = 100
_RING_IDS = 256
"""Capability bit of a runtime (``pto/abi/runtime.h``): task ids combine a ring and a number."""
_RINGS = 4
_NS = 1_000_000_000
_ANSWER_S = 0.12  # the core answers every 50 ms, if it has the processor
SHOWN_KERNELS = 4
"""The number of running kernels that a text names; it counts the others."""


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
            fields = _SLOT.unpack_from(self._page, offset)
            sequence, task, func_id, core, _, fatal, *_ = fields
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
        magic, _, slots, *_ = _HEADER.unpack_from(self._page, 0)
        count = min(slots, _SLOTS) if magic == _MAGIC else 0
        return [_FIRST_SLOT + slot * _SLOT_BYTES for slot in range(count)]

    def state(self) -> list[str]:
        """Return what the device is doing, as lines; empty if no device uses the page."""
        before = device_record(self.descriptor)
        ask_device(self.descriptor)
        if before is None or "text" not in before:
            return []
        time.sleep(_ANSWER_S)
        record = device_record(self.descriptor)
        return [] if record is None else device_lines(with_new_text(record, before))

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


def ask_device(descriptor: int) -> None:
    """Ask the process of a device to write the text of its runtime to the activity page."""
    os.pwrite(descriptor, struct.pack("<Q", time.monotonic_ns()), _ASKED)


def device_record(descriptor: int) -> dict[str, Any] | None:
    """Return what the device does whose activity page is this file; None for another file.

    ``version`` and ``process`` are always present. The other keys are missing if the layout of the
    page has another version than :data:`PAGE_VERSION`.
    """
    page = os.pread(descriptor, PAGE_BYTES, 0)
    if len(page) < _FIRST_SLOT or _HEADER.unpack_from(page)[0] != _MAGIC:
        return None
    _, version, slots, device, capabilities, process, *_, blocks, variant = _HEADER.unpack_from(
        page
    )
    known = {"version": version, "process": process}
    if version != PAGE_VERSION or len(page) < PAGE_BYTES:
        return known
    for _ in range(_READS):
        before, page = page, os.pread(descriptor, PAGE_BYTES, 0)
        sequence = page[_TEXT_SEQUENCE : _TEXT_SEQUENCE + 8]
        if sequence == before[_TEXT_SEQUENCE : _TEXT_SEQUENCE + 8] and sequence[0] % 2 == 0:
            break
    else:
        sequence = b""
    text = _text(before[_TEXT:]) if sequence else ""
    names = {
        kernel: _text(name)
        for kernel, name in (
            _KERNEL.unpack_from(page, _FIRST_KERNEL + i * _KERNEL.size) for i in range(_KERNELS)
        )
        if kernel
    }
    ended, running = 0, []
    for i in range(min(slots, _SLOTS)):
        offset = _FIRST_SLOT + i * _SLOT_BYTES
        first, slot = _SLOT.unpack_from(before, offset), _SLOT.unpack_from(page, offset)
        ended += slot[0] // 2
        # The fields of the earlier copy belong together if the kernel has not ended since.
        if first[0] % 2 and first[0] == slot[0]:
            running.append(_running(first, names, capabilities, blocks))
    return {
        **known,
        "device": device,
        "runtime": _text(variant),
        "kernels_ended": ended,
        "running": sorted(running, key=lambda one: -(one["age_s"] or 0)),
        "text": text,
        "text_sequence": int.from_bytes(sequence, "little"),
    }


def with_new_text(record: Mapping[str, Any], before: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the record without a text that the record before has too: no run has written it."""
    is_new = before is not None and before["text_sequence"] != record["text_sequence"]
    rest = {key: value for key, value in record.items() if key != "text_sequence"}
    return {**rest, "text": record["text"] if is_new else ""}


def _running(
    slot: tuple[int, ...], names: Mapping[int, str], capabilities: int, blocks: int
) -> dict[str, Any]:
    sequence, task, func_id, core, kernel, signal, _, seen, seen_ns = slot
    has_ring_ids = bool(capabilities & _RING_IDS)
    named = RunningKernel(0, sequence, task, func_id, core, signal, has_ring_ids)
    age_s = max(time.monotonic_ns() - seen_ns, 0) / _NS if seen == sequence else None
    return {
        "kernel": names.get(kernel),
        "func_id": func_id,
        "task": named.task_name.removeprefix("task "),
        "core": core_name(core, blocks or None),
        "age_s": None if age_s is None else round(age_s, 3),
    }


def _text(text: bytes) -> str:
    return text.partition(b"\0")[0].decode(errors="replace")


def kernel_text(running: Mapping[str, Any]) -> str:
    """Return the phrase for a kernel that runs, as in a record of a device."""
    age = "" if running["age_s"] is None else f", for {running['age_s']:.1f} s"
    name = running["kernel"] or f"func_id {running['func_id']}"
    return f"{name}, task {running['task']}, on {running['core']}{age}"


def device_lines(record: Mapping[str, Any]) -> list[str]:
    """Return what a device does, as lines: its counts, its oldest kernels and its runtime."""
    running = record["running"]
    rate = record.get("kernels_per_s")
    lines = [
        f"device {record['device']}, {record['runtime']}: {record['kernels_ended']:,} kernels "
        f"ended, {len(running):,} running" + ("" if rate is None else f", {rate:,.0f} kernels/s"),
        *(f"  {kernel_text(one)}" for one in running[:SHOWN_KERNELS]),
    ]
    if len(running) > SHOWN_KERNELS:
        lines.append(f"  {len(running) - SHOWN_KERNELS} more")
    return [*lines, f"  {record['text']}"] if record["text"] else lines


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
