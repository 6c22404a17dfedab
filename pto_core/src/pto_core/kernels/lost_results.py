"""Detect results of Python kernels and tasks that would be lost.

A Python kernel or task writes results into its Out and InOut arrays. Two mistakes lose a result
without an error: a kernel returns a value, or a function assigns a new array to the name of a
parameter (``out = x * 2`` instead of ``out[:] = x * 2``).

Assignments are found in the bytecode, once for each function. Only a function that assigns to the
name of such a parameter is wrapped in :class:`_AssignmentCheck`, which compares the final value of
the name with the argument. The local variables can be read after the return as long as the frame is
referenced. A profile function receives the frame at the call and then removes itself, so the body
runs at full speed. The alternatives have disadvantages: changing bytecode depends on the version of
Python, changing source needs the source, and ``sys.monitoring`` needs Python 3.12 and a free tool
number.
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import CodeType, FrameType, FunctionType
from typing import Any

import numpy as np

from pto_core.errors import UsageError
from pto_core.errors.plain_functions import require_executed, source_of
from pto_core.kernels.direction import WRITTEN, TaskSignature


def checked(function: Callable[..., Any], signature: TaskSignature) -> Callable[..., Any]:
    """Return ``function``, or a wrapper if it assigns to the names of written parameters.

    Raises UsageError for such a function of numba, whose variables cannot be read.
    """
    source = source_of(function)
    if not isinstance(source, FunctionType):
        return function
    code = source.__code__
    assigned = set(_assigned_names(code))
    written = [
        (position, name)
        for position, name in enumerate(code.co_varnames[: code.co_argcount])
        if name in assigned and _is_written(signature, position)
    ]
    if written and source is not function:
        name = written[0][1]
        raise UsageError(
            f"{source.__qualname__} is compiled and assigns to its parameter {name}, but its "
            f"caller receives only what is written into the array; write {name}[:] = ... instead "
            f"of {name} = ..., or use another name",
            name=name,
        )
    return _AssignmentCheck(source, tuple(written)) if written else function


def refuse_returned(kind: str, name: str, value: object) -> None:
    """Raise UsageError for a function ``name`` that returned ``value``."""
    require_executed(kind, name, value)
    raise UsageError(
        f"{kind} {name} returned a value of type {type(value).__name__}, but its caller receives "
        "only what it writes into its arrays; write the result into an Out parameter, as in "
        "out[:] = result, and return None",
        name=name,
        value=type(value).__name__,
        expected="None",
    )


@dataclass(frozen=True)
class _AssignmentCheck:
    """Calls a function; compares the final values of the names in ``written`` with its arguments.

    Nothing is checked while another profile function is active.
    """

    function: FunctionType
    written: tuple[tuple[int, str], ...]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if sys.getprofile() is not None:
            return self.function(*args, **kwargs)
        code = self.function.__code__
        frames: list[FrameType] = []
        final: dict[str, Any] = {}

        def keep_frame(frame: FrameType, event: str, _: object) -> None:
            if frame.f_code is code:
                sys.setprofile(None)
                frames.append(frame)

        sys.setprofile(keep_frame)
        try:
            result = self.function(*args, **kwargs)
        finally:
            sys.setprofile(None)
            # Remove the frame from the list. The frame refers to the frame of this call, so it
            # would form a cycle that keeps the arrays alive.
            while frames:
                final.update(frames.pop().f_locals)
        for position, name in self.written:
            argument = args[position] if position < len(args) else kwargs.get(name)
            if argument is not None and name in final:
                self._compare(name, argument, final[name])
        return result

    def _compare(self, name: str, argument: Any, final: Any) -> None:
        if final is argument or np.size(argument) == 0 or np.may_share_memory(final, argument):
            return
        function = self.function.__qualname__
        raise UsageError(
            f"{function} assigned a new value of type {type(final).__name__} to its parameter "
            f"{name}, but its caller receives only what is written into the array; write "
            f"{name}[:] = ... instead of {name} = ..., or use another name",
            name=name,
            value=type(final).__name__,
            expected=f"an array that shares memory with the argument {name}",
        )


def _is_written(signature: TaskSignature, position: int) -> bool:
    listed = signature.parameters
    return position < len(listed) and listed[position][1] in WRITTEN


def _assigned_names(code: CodeType) -> Iterator[str]:
    """Yield each assigned name, except those of ``name += ...``, which NumPy executes in place."""
    is_in_place = False
    for instruction in dis.get_instructions(code):
        if instruction.opname.startswith(("STORE_FAST", "STORE_DEREF")):
            yield from _stored_names(instruction)[is_in_place:]
        is_in_place = instruction.opname == "BINARY_OP" and instruction.argrepr.endswith("=")


def _stored_names(instruction: dis.Instruction) -> tuple[str, ...]:
    """Return the names that an instruction assigns; in Python 3.13 one may assign two."""
    names = instruction.argval
    if isinstance(names, str):
        return (names,)
    return tuple(names[:1] if instruction.opname == "STORE_FAST_LOAD_FAST" else names)
