"""Programs for one chip (level 2): kernels, graph programs, the device, and reports of its runs."""

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
