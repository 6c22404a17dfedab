"""A child that opens the device of one chip and runs ChipCallables on it."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pto_core import plugins
from pto_core.errors import UsageError
from pto_core.interfaces import ForkSensitiveBackend
from pto_core.kernels import CallConfig, ChipCallable, DataType
from pto_core.worker.children.service import serve
from pto_core.worker.children.tracing import ChipTracing

if TYPE_CHECKING:
    from pto_core._worker import ContinuousTensor, TaskArgsView
    from pto_core.config import Config
    from pto_core.device import Device, DeviceArray
    from pto_core.worker.children.service import ChildContext
    from pto_core.worker.processes import ChildStart


def refuse_fork_with_vendor_libraries(config: Config) -> None:
    """Raise UsageError if this process has loaded libraries that a forked chip cannot use."""
    backend = plugins.load_unopened("backend", config["backend"])
    loaded = backend.loaded_libraries() if isinstance(backend, ForkSensitiveBackend) else ()
    if not loaded:
        return
    raise UsageError(
        f"this process has loaded {loaded[0]}, which does not work in a forked process, so chips "
        f"of the backend {config['backend']!r} cannot be forked; use start_method='spawn', or "
        "start the Worker in a process that has not loaded the library",
        name="start_method",
        value="fork",
        expected="spawn",
    )


@dataclass(frozen=True)
class ChipBody:
    """The body of a chip child. ``config`` contains the backend, the runtime and their settings."""

    context: ChildContext
    device: int
    config: Config

    def __post_init__(self) -> None:
        """Import the modules of a chip child in the parent, so that forked children share them."""
        import pto_core.device  # noqa: F401

    def __call__(self, start: ChildStart) -> None:
        """Open the device and run tasks until the parent asks the child to close."""
        from pto_core.device import open_device

        start.doing("opening its device")
        # The Worker enforces the time limit of a task by killing the child.
        config = self.config.replace({"device": self.device, "task_timeout_s": None})
        with open_device(config=config) as device:
            chip = _Chip(device, ChipTracing(start.path, device))
            try:
                serve(start, self.context, chip.run, chip.operations, chip.tracing)
            finally:
                chip.free_all()


class _Chip:
    """The open device of a chip child, and the memory that the Worker allocated on this device."""

    def __init__(self, device: Device, tracing: ChipTracing) -> None:
        self._device = device
        self.tracing = tracing
        self._memory: dict[int, DeviceArray] = {}  # arrays that the Worker allocated, by address
        self.operations: Mapping[str, Any] = {
            "malloc": self._malloc,
            "free": self._free,
            "copy_to": self._copy_to,
            "copy_from": self._copy_from,
        }

    def run(self, chip: Any, args: TaskArgsView | None, config: CallConfig | None) -> None:
        """Run one task; its arrays are copied as the signature of its ChipCallable requires."""
        values = [] if args is None else self._values(chip, args)
        self._device.run(chip, *values, config=config, trace=self.tracing.level_of_task())

    def free_all(self) -> None:
        """Free the memory that the Worker allocated and did not free."""
        for array in self._memory.values():
            array.free()
        self._memory.clear()

    def _values(self, chip: Any, args: TaskArgsView) -> list[Any]:
        tensors = [
            self._on_device(tensor) if tensor.child_memory else args.tensor(index)
            for index, tensor in enumerate(args.tensors)
        ]
        return tensors + _scalars(chip, args)

    def _on_device(self, tensor: ContinuousTensor) -> DeviceArray:
        """Return the array of device memory for a tensor whose flag ``child_memory`` is set."""
        for address, array in self._memory.items():
            offset = tensor.address - address
            if offset >= 0 and offset + tensor.nbytes <= array.nbytes:
                return array.view(offset, tensor.shape, tensor.dtype.numpy)
        raise UsageError(
            f"a tensor with child_memory has {tensor.nbytes} bytes at {tensor.address:#x}, which "
            "is not in memory of this chip; use an address that malloc returned for this child and "
            "that was not freed",
            name="child_memory",
            value=tensor.address,
        )

    def _malloc(self, nbytes: int) -> int:
        array = self._device.empty(nbytes, "uint8")
        self._memory[array.address] = array
        return array.address

    def _free(self, address: int) -> None:
        array = self._memory.pop(address, None)
        if array is None:
            raise UsageError(
                f"{address:#x} was not returned by malloc for this chip, or was freed",
                name="address",
                value=address,
            )
        array.free()

    def _copy_to(self, address: int, source: int, nbytes: int) -> None:
        self._range(address, nbytes).from_host(_bytes_at(source, nbytes))

    def _copy_from(self, target: int, address: int, nbytes: int) -> None:
        self._range(address, nbytes).to_host(_bytes_at(target, nbytes))

    def _range(self, address: int, nbytes: int) -> DeviceArray:
        from pto_core._worker import ContinuousTensor

        return self._on_device(ContinuousTensor.from_pointer(address, (nbytes,), "uint8", True))


def _bytes_at(address: int, nbytes: int) -> Any:
    """Return an array view of memory that parent and child share."""
    import numpy as np

    return np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(address))


def _scalars(chip: Any, args: TaskArgsView) -> list[Any]:
    """Return the scalars in the types that the orchestration expects.

    A scalar with a type in the signature is converted to that type. Other scalars are passed to a
    Python orchestration as signed integers, and to a C++ orchestration as raw bits.
    """
    is_python = not isinstance(chip, ChipCallable) or chip.function is not None
    described = chip if isinstance(chip, ChipCallable) else ChipCallable(chip)
    declared = described.declared_scalars()
    values: list[Any] = []
    for index, value in enumerate(args.scalars):
        code = declared[index] if index < len(declared) else -1
        if code >= 0:
            values.append(args.scalar(index, DataType(code)))
        else:
            values.append(args.scalar(index, int) if is_python else ctypes.c_uint64(value))
    return values
