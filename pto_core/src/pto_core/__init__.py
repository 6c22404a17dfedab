"""A task-graph runtime for Ascend NPUs: the public names of the core.

Importing this package imports nothing else; each name is loaded when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pto_core.device import Activity, CoreUsage, Device, DeviceArray, RunReport, open_device
    from pto_core.kernels import (
        CallConfig,
        ChipCallable,
        CoreCallable,
        DataType,
        In,
        InOut,
        KernelSource,
        Out,
        Scalar,
        kernel,
    )

__version__ = "0.1.0"

__all__ = [
    "Activity",
    "CallConfig",
    "ChipCallable",
    "CoreCallable",
    "CoreUsage",
    "DataType",
    "Device",
    "DeviceArray",
    "In",
    "InOut",
    "KernelSource",
    "Out",
    "RunReport",
    "Scalar",
    "kernel",
    "open_device",
]

_DEVICE_NAMES = {"Activity", "CoreUsage", "Device", "DeviceArray", "RunReport", "open_device"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    room = "pto_core.device" if name in _DEVICE_NAMES else "pto_core.kernels"
    value = getattr(import_module(room), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
