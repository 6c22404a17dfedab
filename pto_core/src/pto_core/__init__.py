"""A task-graph runtime for Ascend NPUs: the public names of the core.

Importing this package loads no other part; each name is loaded when it is first used. Closed
standard streams are replaced by ``/dev/null``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from pto_core import standard_streams

if TYPE_CHECKING:
    from pto_core.cases import CaseReport, list_cases, run_all_cases, run_case
    from pto_core.device import (
        Activity,
        CoreUsage,
        Device,
        DeviceArray,
        Graph,
        RunReport,
        open_device,
    )
    from pto_core.hierarchy.api import (
        CallableHandle,
        CapturedGraph,
        ContinuousTensor,
        Hosts,
        Orchestrator,
        Progress,
        RemoteBuffer,
        RemoteCallable,
        RemoteTaskArgs,
        RemoteTensorRef,
        RemoteWorkerSpec,
        Session,
        Task,
        TaskArgs,
        TaskArgsView,
        TaskHandle,
        TensorArgType,
        Worker,
        task,
    )
    from pto_core.kernels import (
        CallConfig,
        ChipCallable,
        CoreCallable,
        DataType,
        Direction,
        In,
        InOut,
        KernelSource,
        NoDep,
        Out,
        OutExisting,
        Scalar,
        kernel,
    )
    from pto_core.user_ranges import range as range

__version__ = "0.1.0"

__all__ = [
    "Activity",
    "CallConfig",
    "CallableHandle",
    "CapturedGraph",
    "CaseReport",
    "ChipCallable",
    "ContinuousTensor",
    "CoreCallable",
    "CoreUsage",
    "DataType",
    "Device",
    "DeviceArray",
    "Direction",
    "Graph",
    "Hosts",
    "In",
    "InOut",
    "KernelSource",
    "NoDep",
    "Orchestrator",
    "Out",
    "OutExisting",
    "Progress",
    "RemoteBuffer",
    "RemoteCallable",
    "RemoteTaskArgs",
    "RemoteTensorRef",
    "RemoteWorkerSpec",
    "RunReport",
    "Scalar",
    "Session",
    "Task",
    "TaskArgs",
    "TaskArgsView",
    "TaskHandle",
    "TensorArgType",
    "Worker",
    "kernel",
    "list_cases",
    "open_device",
    "run_all_cases",
    "run_case",
    "task",
]

_CASE_NAMES = {"CaseReport", "list_cases", "run_all_cases", "run_case"}
_DEVICE_NAMES = {
    "Activity",
    "CoreUsage",
    "Device",
    "DeviceArray",
    "Graph",
    "RunReport",
    "open_device",
}

_HIERARCHY_NAMES = {
    "CallableHandle",
    "CapturedGraph",
    "ContinuousTensor",
    "Hosts",
    "Orchestrator",
    "Progress",
    "RemoteBuffer",
    "RemoteCallable",
    "RemoteTaskArgs",
    "RemoteTensorRef",
    "RemoteWorkerSpec",
    "Session",
    "Task",
    "TaskArgs",
    "TaskArgsView",
    "TaskHandle",
    "TensorArgType",
    "Worker",
    "task",
}


standard_streams.complete()


def __getattr__(name: str) -> Any:
    if name not in __all__ and name != "range":  # `import *` must not hide the built-in range
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"pto_core.{_room(name)}"), name)
    globals()[name] = value
    return value


def _room(name: str) -> str:
    if name in _CASE_NAMES:
        return "cases"
    if name in _HIERARCHY_NAMES:
        return "hierarchy.api"
    if name == "range":
        return "user_ranges"
    return "device" if name in _DEVICE_NAMES else "kernels"


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
