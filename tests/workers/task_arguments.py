"""The arguments of a task in one expression."""

from __future__ import annotations

from typing import Any

from pto_core import TaskArgs, TensorArgType


def given(*tensors: tuple[Any, TensorArgType], scalars: tuple[int, ...] = ()) -> TaskArgs:
    """Create task arguments from pairs of a tensor and its tag, and from scalars."""
    args = TaskArgs()
    for tensor, tag in tensors:
        args.add_tensor(tensor, tag)
    for scalar in scalars:
        args.add_scalar(scalar)
    return args
