"""The interface of Workers that programs for the published runtime use, with its names.

``docs/porting.md`` lists the differences.
"""

from pto_core._worker import (
    CallableHandle as CallableHandle,
    ContinuousTensor as ContinuousTensor,
    Orchestrator as Orchestrator,
    TaskArgs as TaskArgs,
    TaskArgsView as TaskArgsView,
    TaskHandle as TaskHandle,
    TensorArgType as TensorArgType,
)
from pto_core.kernels import (
    CallConfig as CallConfig,
    ChipCallable as ChipCallable,
    CoreCallable as CoreCallable,
    DataType as DataType,
    Direction as Direction,
    KernelSource as KernelSource,
    OrchestrationSource as OrchestrationSource,
)
from pto_core.worker.hosts import (
    RemoteCallable as RemoteCallable,
    RemoteWorkerSpec as RemoteWorkerSpec,
)
from pto_core.worker.remote_buffers import (
    RemoteBuffer as RemoteBuffer,
    RemoteTaskArgs as RemoteTaskArgs,
    RemoteTensorRef as RemoteTensorRef,
)
from pto_core.worker.worker import Worker as Worker
