"""Names of ``simpler.task_interface`` that scene tests and callables use."""

from pto_compat_simpler.task_interface import (
    ArgDirection as ArgDirection,
    CallConfig as CallConfig,
    DataType as DataType,
    TensorArgType as TensorArgType,
    scalar_to_uint64 as scalar_to_uint64,
)
