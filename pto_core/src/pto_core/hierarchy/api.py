"""The public names of level 3 and up, for :mod:`pto_core`."""

from pto_core._hierarchy import (
    CallableHandle,
    CapturedGraph,
    ContinuousTensor,
    Orchestrator,
    TaskArgs,
    TaskArgsView,
    TaskHandle,
    TensorArgType,
)
from pto_core.hierarchy.hosts import Hosts, RemoteCallable, RemoteWorkerSpec
from pto_core.hierarchy.progress import Progress
from pto_core.hierarchy.remote_buffers import RemoteBuffer, RemoteTaskArgs, RemoteTensorRef
from pto_core.hierarchy.session import Session
from pto_core.hierarchy.tasks import Task, task
from pto_core.hierarchy.worker import Worker

__all__ = [
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
]
