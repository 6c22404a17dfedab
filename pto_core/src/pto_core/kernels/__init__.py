"""Kernels, orchestrations, their signatures, and the configuration of a run."""

from pto_core.kernels.annotations import (
    In,
    InOut,
    NoDep,
    Out,
    OutExisting,
    Scalar,
    f32,
    f64,
    i32,
    i64,
)
from pto_core.kernels.call_config import CallConfig
from pto_core.kernels.callables import (
    ChipCallable,
    CoreCallable,
    KernelSource,
    OrchestrationSource,
    kernel,
)
from pto_core.kernels.data_type import DataType
from pto_core.kernels.direction import (
    CoreType,
    Direction,
    Parameter,
    TaskSignature,
)

__all__ = [
    "CallConfig",
    "ChipCallable",
    "CoreCallable",
    "CoreType",
    "DataType",
    "Direction",
    "In",
    "InOut",
    "KernelSource",
    "NoDep",
    "OrchestrationSource",
    "Out",
    "OutExisting",
    "Parameter",
    "Scalar",
    "TaskSignature",
    "f32",
    "f64",
    "i32",
    "i64",
    "kernel",
]
