"""The level-2 API: a device in this process, and runs on it."""

from pto_core._native import DeviceArray, Graph
from pto_core.device.device import Device, open_device
from pto_core.device.report import Activity, CoreUsage, DeviceProcess, RunReport

__all__ = [
    "Activity",
    "CoreUsage",
    "Device",
    "DeviceArray",
    "DeviceProcess",
    "Graph",
    "RunReport",
    "open_device",
]
