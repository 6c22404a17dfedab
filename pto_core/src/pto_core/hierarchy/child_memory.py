"""Access to the memory of chips from the process of the Worker.

Copies go through the arena, one piece at a time.
"""

from __future__ import annotations

import numpy as np

from pto_core._native import integer
from pto_core.errors import UsageError
from pto_core.errors.values import shown
from pto_core.hierarchy.child_group import ChildGroup
from pto_core.hierarchy.failures import place_of

_PIECE_BYTES = 1 << 22
_NONE = -1


class ChildMemory:
    """Sends memory requests to the chips of a Worker."""

    def __init__(self, children: ChildGroup) -> None:
        self._children = children

    def malloc(self, child: int, nbytes: int) -> int:
        """Allocate memory on a chip. Raises ControlError; its cause is the error of the device."""
        child = self._chip(child)
        count = integer(nbytes, 1, 2**63 - 1)
        if count is None:
            raise UsageError(
                f"malloc of {shown(nbytes)} bytes; pass a positive number", name="nbytes"
            )
        address = int(self._children.ask(child, "malloc", count))
        self._children.driver.add_child_memory(child, address, count)
        return address

    def free(self, child: int, address: int) -> None:
        """Free memory; raise UsageError while a task that names the memory has not ended."""
        child, address = self._chip(child), _address(address)
        check_unused(self._children, child, address, f"free of {address:#x} on chip {child}")
        self._children.driver.remove_child_memory(child, address)
        self._children.ask(child, "free", address)

    def copy_to(self, child: int, address: int, source: object) -> None:
        """Copy from any object with a buffer to the chip."""
        child, address = self._chip(child), _address(address)
        content = bytes_of(source, writable=False)
        staging = self._staging(content.nbytes)
        for first in range(0, content.nbytes, _PIECE_BYTES):
            piece = content[first : first + _PIECE_BYTES]
            staging[: piece.nbytes] = piece
            self._children.ask(child, "copy_to", address + first, staging.ctypes.data, piece.nbytes)

    def copy_from(self, child: int, target: object, address: int) -> None:
        """Copy from the chip to any object with a writable buffer."""
        child, address = self._chip(child), _address(address)
        content = bytes_of(target, writable=True)
        staging = self._staging(content.nbytes)
        for first in range(0, content.nbytes, _PIECE_BYTES):
            piece = content[first : first + _PIECE_BYTES]
            self._children.ask(
                child, "copy_from", staging.ctypes.data, address + first, piece.nbytes
            )
            piece[:] = staging[: piece.nbytes]

    def _staging(self, nbytes: int) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
        return self._children.arena.array(max(1, min(nbytes, _PIECE_BYTES)), "uint8")

    def _chip(self, worker: object) -> int:
        chips = len(self._children.settings.device_ids)  # chips are the first children
        child = integer(worker, 0, chips - 1)
        if child is None:
            raise UsageError(
                f"there is no chip child {shown(worker)}; this Worker has chips 0 to {chips - 1}",
                name="worker",
                value=worker,
                expected=f"0 to {chips - 1}",
            )
        return child


def _address(given: object) -> int:
    address = integer(given, 0, 2**63 - 1)
    if address is None:
        raise UsageError(
            f"address is {shown(given)}; pass an address that malloc returned",
            name="address",
            value=given,
        )
    return address


def check_unused(children: ChildGroup, child: int, address: int, call: str) -> None:
    """Raise UsageError while a task that names the memory of a child has not ended."""
    task = children.driver.child_memory_user(child, address)
    if task != _NONE:
        name = place_of(task, children.driver.task(task)).name
        raise UsageError(
            f"{call} while {name}, which names it, has not ended; wait for the task, or repeat the "
            "call when the run is over",
            name="address",
            value=address,
        )


def bytes_of(array: object, *, writable: bool) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    """Return the bytes of a contiguous array or another object with a buffer; raise UsageError."""
    found = np.asarray(array) if not isinstance(array, bytes) else np.frombuffer(array, np.uint8)
    if not found.flags.c_contiguous or (writable and not found.flags.writeable):
        if writable:
            raise UsageError(
                "the array to copy to is not contiguous and writable; pass such an array, and copy "
                "its content to this array"
            )
        raise UsageError("the array to copy from is not contiguous; pass a contiguous copy of it")
    return found.reshape(-1).view(np.uint8)
