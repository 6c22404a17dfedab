"""Names of ``simpler.task_interface`` that scene tests and callables use."""

from __future__ import annotations

import enum
import struct
from typing import Any

from pto_core.published import (
    CallConfig as CallConfig,
    DataType as DataType,
    TensorArgType as TensorArgType,
)


class ArgDirection(enum.StrEnum):
    """How an orchestration or a kernel uses an argument."""

    SCALAR = "scalar"
    IN = "in"
    OUT = "out"
    INOUT = "inout"


def scalar_to_uint64(value: Any) -> int:
    """Return the 64 bits of a scalar: a float becomes a float32, an int is extended by its sign."""
    plain = getattr(value, "value", value)
    if isinstance(plain, float):
        bits: int = struct.unpack("<I", struct.pack("<f", plain))[0]
        return bits
    return int(plain) & 0xFFFF_FFFF_FFFF_FFFF
