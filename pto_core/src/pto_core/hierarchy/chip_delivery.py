"""Serialise ChipCallables: sources and binaries by path, functions by import path or by code."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pto_core.errors import UsageError
from pto_core.hierarchy.serialisation import (
    deserialised,
    fingerprint,
    import_path,
    imported,
    imported_version,
    is_of_main,
    serialised,
)
from pto_core.kernels import ChipCallable, CoreCallable, KernelSource, OrchestrationSource

# A serialised part of a ChipCallable: its format and its content.
_Part = tuple[str, Any]


def chip_to_bytes(chip: ChipCallable, *, serialise: bool) -> bytes:
    """Serialise ``chip``. Raises UsageError for a function that cannot be serialised.

    ``serialise``: send all functions by code, also those that have an import path.
    """
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
    """Return the ChipCallable. Raises NotImportableError for a function that cannot be imported."""
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
        return "orchestration", (os.path.abspath(part.path), part.function_name, part.options)
    if isinstance(part, KernelSource):
        return "kernel", (os.path.abspath(part.path), part.options)
    if isinstance(part, Path):
        return "binary", os.path.abspath(part)
    return _function(part, serialise)


def _function(function: Callable[..., Any], serialise: bool) -> _Part:
    path = None if serialise else _path_of(function)
    if path is not None:
        return "import", (path, fingerprint(imported(path)))
    try:
        return "serialised", serialised(function)
    except Exception as error:
        raise UsageError(
            f"{getattr(function, '__qualname__', function)} cannot be serialised: {error}; change "
            "what it refers to, or register the ChipCallable before init() with "
            "start_method='fork'",
            name="target",
            value=function,
        ) from error


def _path_of(function: Callable[..., Any]) -> str | None:
    """Return the import path of a function, also if a kernel object has taken its name."""
    path = import_path(function)
    if path is not None:
        return path
    named = f"{getattr(function, '__module__', '')}:{getattr(function, '__qualname__', '')}"
    try:
        found = imported(named)
    except (ImportError, AttributeError, KeyError, ValueError):
        return None
    is_kernel = isinstance(found, CoreCallable) and found.function is function
    return named if is_kernel and not is_of_main(named) else None


def _read(part: _Part) -> Any:
    way, content = part
    if way == "orchestration":
        return OrchestrationSource(*content)
    if way == "kernel":
        return KernelSource(*content)
    if way == "binary":
        return Path(content)
    if way == "serialised":
        return deserialised(content)
    found = imported_version(*content)
    return found.function if isinstance(found, CoreCallable) else found
