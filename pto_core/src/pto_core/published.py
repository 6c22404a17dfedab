"""The interface of Workers that programs for the published runtime use, with its names.

``docs/porting.md`` lists the differences.
"""

from typing import TYPE_CHECKING, Any

from pto_core._worker import (
    CallableHandle as CallableHandle,
    ContinuousTensor as ContinuousTensor,
    Orchestrator as Orchestrator,
    TaskArgs as TaskArgs,
    TaskArgsView as TaskArgsView,
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
from pto_core.worker import remote_transport as _remote_transport
from pto_core.worker.futures import TaskHandle as TaskHandle
from pto_core.worker.hosts import (
    RemoteCallable as RemoteCallable,
    RemoteWorkerSpec as RemoteWorkerSpec,
)
from pto_core.worker.worker import Worker as Worker

if TYPE_CHECKING:
    from pto_core.worker.remote_transport import (
        RemoteBuffer as RemoteBuffer,
        RemoteTaskArgs as RemoteTaskArgs,
        RemoteTensorRef as RemoteTensorRef,
    )
else:

    def __getattr__(name: str) -> Any:
        """Return a name of remote buffers; raise PluginError if their plugin is missing."""
        if name not in ("RemoteBuffer", "RemoteTaskArgs", "RemoteTensorRef"):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(_remote_transport, name)
