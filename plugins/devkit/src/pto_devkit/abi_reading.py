"""Read tables and payloads of the native ABI."""

from __future__ import annotations

import ctypes

from pto_devkit import abi


def entries(table: type[ctypes.Structure]) -> list[str]:
    """List the names of the functions in a table."""
    return [field[0] for field in table._fields_ if hasattr(field[1], "_flags_")]


def payload_arguments(payload: abi.Payload) -> list[int]:
    """Read the arguments that follow the header of a payload in memory."""
    start = ctypes.addressof(payload) + ctypes.sizeof(abi.Payload)
    return list((ctypes.c_uint64 * payload.num_args).from_address(start))
