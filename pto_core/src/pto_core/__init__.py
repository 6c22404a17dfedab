"""A task-graph runtime for Ascend NPUs: the names that most programs need, and four sections.

- ``pto_core.chip`` has all names for programs on one chip.
- ``pto_core.published`` has the names of Workers that programs for the published runtime use.
- ``pto_core.cases`` runs cases. ``pto_core.errors`` has all exceptions.

Programs can also import the names of the first three sections from this package.

Importing this package loads no other part; each name is loaded when it is first used. Closed
standard streams are replaced by ``/dev/null``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from pto_core import standard_streams

# For type checkers: the names of `_SECTIONS` and `_PARTS`.
if TYPE_CHECKING:
    from pto_core import cases as cases, chip as chip, errors as errors, published as published
    from pto_core._worker import (
        CallableHandle as CallableHandle,
        CapturedGraph as CapturedGraph,
        ContinuousTensor as ContinuousTensor,
        Orchestrator as Orchestrator,
        TaskArgs as TaskArgs,
        TaskArgsView as TaskArgsView,
        TensorArgType as TensorArgType,
    )
    from pto_core.cases import (
        CaseReport as CaseReport,
        list_cases as list_cases,
        run_all_cases as run_all_cases,
        run_case as run_case,
    )
    from pto_core.device import (
        Activity as Activity,
        CoreUsage as CoreUsage,
        Device as Device,
        DeviceArray as DeviceArray,
        Graph as Graph,
        RunReport as RunReport,
        open_device as open_device,
    )
    from pto_core.kernels import (
        CallConfig as CallConfig,
        ChipCallable as ChipCallable,
        CoreCallable as CoreCallable,
        DataType as DataType,
        Direction as Direction,
        In as In,
        InOut as InOut,
        KernelSource as KernelSource,
        NoDep as NoDep,
        OrchestrationSource as OrchestrationSource,
        Out as Out,
        OutExisting as OutExisting,
        Scalar as Scalar,
        f32 as f32,
        f64 as f64,
        i32 as i32,
        i64 as i64,
        kernel as kernel,
    )
    from pto_core.kernels.retries import Retries as Retries
    from pto_core.progress import Progress as Progress
    from pto_core.user_ranges import range as range
    from pto_core.worker.futures import TaskHandle as TaskHandle
    from pto_core.worker.hosts import (
        Hosts as Hosts,
        RemoteCallable as RemoteCallable,
        RemoteWorkerSpec as RemoteWorkerSpec,
    )
    from pto_core.worker.remote_transport import (
        RemoteBuffer as RemoteBuffer,
        RemoteTaskArgs as RemoteTaskArgs,
        RemoteTensorRef as RemoteTensorRef,
    )
    from pto_core.worker.retries import attempt as attempt
    from pto_core.worker.session import Session as Session
    from pto_core.worker.tasks import Task as Task, task as task
    from pto_core.worker.worker import Worker as Worker

__version__ = "0.1.0"

_SECTIONS = ("cases", "chip", "errors", "published")

_PARTS = {
    "_worker": (
        "CallableHandle",
        "CapturedGraph",
        "ContinuousTensor",
        "Orchestrator",
        "TaskArgs",
        "TaskArgsView",
        "TensorArgType",
    ),
    "cases": (
        "CaseReport",
        "list_cases",
        "run_all_cases",
        "run_case",
    ),
    "device": (
        "Activity",
        "CoreUsage",
        "Device",
        "DeviceArray",
        "Graph",
        "RunReport",
        "open_device",
    ),
    "worker.futures": ("TaskHandle",),
    "worker.hosts": (
        "Hosts",
        "RemoteCallable",
        "RemoteWorkerSpec",
    ),
    "progress": ("Progress",),
    "worker.remote_transport": (
        "RemoteBuffer",
        "RemoteTaskArgs",
        "RemoteTensorRef",
    ),
    "worker.retries": ("attempt",),
    "worker.session": ("Session",),
    "worker.tasks": (
        "Task",
        "task",
    ),
    "worker.worker": ("Worker",),
    "kernels": (
        "CallConfig",
        "ChipCallable",
        "CoreCallable",
        "DataType",
        "Direction",
        "In",
        "InOut",
        "KernelSource",
        "NoDep",
        "OrchestrationSource",
        "Out",
        "OutExisting",
        "Scalar",
        "f32",
        "f64",
        "i32",
        "i64",
        "kernel",
    ),
    "kernels.retries": ("Retries",),
    "user_ranges": ("range",),
}
_PART_OF = {name: part for part, names in _PARTS.items() for name in names}

# Not in it: names that belong to a section, and `range`, which would hide the built-in function.
__all__ = [
    "CapturedGraph",
    "Graph",
    "Hosts",
    "In",
    "InOut",
    "Out",
    "Progress",
    "Retries",
    "Scalar",
    "Session",
    "Task",
    "TaskHandle",
    "Worker",
    "attempt",
    "kernel",
    "open_device",
    "run_case",
    "task",
]

standard_streams.complete()

# Type checkers must not see it, because they accept any attribute of a module that has it.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name in _SECTIONS:
            return import_module(f"pto_core.{name}")
        if name not in _PART_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(f"pto_core.{_PART_OF[name]}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_SECTIONS})
