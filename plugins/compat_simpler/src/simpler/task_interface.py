"""The module ``simpler.task_interface``: the values that programs pass to a Worker."""

from pto_compat_simpler.task_interface import (
    ArgDirection as ArgDirection,
    Buffer as Buffer,
    CallConfig as CallConfig,
    ChipCallable as ChipCallable,
    ChipStorageTaskArgs as ChipStorageTaskArgs,
    ChipTensor as ChipTensor,
    CommBufferSpec as CommBufferSpec,
    CoreCallable as CoreCallable,
    DataType as DataType,
    TaskArgs as TaskArgs,
    Tensor as Tensor,
    TensorArgType as TensorArgType,
    scalar_to_uint64 as scalar_to_uint64,
)
