"""A chip's callable as bytes: sources and binaries by path, functions by name or by code."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pto_core.errors import UsageError
from pto_core.hierarchy.serialisation import deserialised, import_path, imported, serialised
from pto_core.kernels import ChipCallable, CoreCallable, KernelSource, OrchestrationSource

# How a part is written: the way, and what that way needs.
_Part = tuple[str, Any]


def chip_to_bytes(chip: ChipCallable, *, serialise: bool) -> bytes:
    """Write ``chip``; raises UsageError for a function that cannot be taken along."""
    children = {
        func_id: (
            _part(child.binary, serialise),
            child.core_type,
            child.signature,
            child.name,
        )
        for func_id, child in chip.children.items()
    }
    orchestration = _part(chip.orchestration, serialise)
    return pickle.dumps((orchestration, children, chip.signature, chip.name, chip.argument_names))


def chip_from_bytes(content: bytes) -> ChipCallable:
    """Make the chip's callable again."""
    orchestration, children, signature, name, argument_names = pickle.loads(content)
    kernels = {
        func_id: CoreCallable(_read(binary), core_type, kernel_signature, kernel_name)
        for func_id, (binary, core_type, kernel_signature, kernel_name) in children.items()
    }
    return ChipCallable(_read(orchestration), kernels, signature, name, argument_names)


def _part(
    part: KernelSource | OrchestrationSource | Path | Callable[..., Any], serialise: bool
) -> _Part:
    if isinstance(part, OrchestrationSource):
        return "orchestration", (os.path.abspath(part.path), part.function_name)
    if isinstance(part, KernelSource):
        return "kernel", os.path.abspath(part.path)
    if isinstance(part, Path):
        return "binary", os.path.abspath(part)
    return _function(part, serialise)


def _function(function: Callable[..., Any], serialise: bool) -> _Part:
    path = _path_of(function)
    if path is not None and not path.startswith("__main__:"):
        return "import", path
    if not serialise:
        raise UsageError(
            f"{getattr(function, '__qualname__', function)} cannot be imported by the chips' "
            "processes, which run already; register the ChipCallable before init(), or pass "
            "serialise=True",
            name="target",
            value=function,
        )
    try:
        return "serialised", serialised(function)
    except Exception as error:
        raise UsageError(
            f"{getattr(function, '__qualname__', function)} cannot be serialised: {error}",
            name="target",
            value=function,
        ) from error


def _path_of(function: Callable[..., Any]) -> str | None:
    """A kernel's function hides behind the kernel of the same name."""
    path = import_path(function)
    if path is not None:
        return path
    named = f"{getattr(function, '__module__', '')}:{getattr(function, '__qualname__', '')}"
    try:
        found = imported(named)
    except (ImportError, AttributeError, ValueError):
        return None
    is_kernel = isinstance(found, CoreCallable) and found.function is function
    return named if is_kernel else None


def _read(part: _Part) -> Any:
    way, content = part
    if way == "orchestration":
        return OrchestrationSource(*content)
    if way == "kernel":
        return KernelSource(content)
    if way == "binary":
        return Path(content)
    if way == "serialised":
        return deserialised(content)
    found = imported(content)
    return found.function if isinstance(found, CoreCallable) else found
