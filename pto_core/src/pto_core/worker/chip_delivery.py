"""Serialise ChipCallables: sources and binaries by path, functions by import path or by code."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pto_core.errors import UsageError
from pto_core.kernels import (
    ChipCallable,
    CoreCallable,
    CoreType,
    KernelSource,
    OrchestrationSource,
    Parameter,
)
from pto_core.worker.serialisation import (
    deserialised,
    fingerprint,
    import_path,
    imported,
    imported_version,
    is_of_main,
    serialised,
)

# A serialised part of a ChipCallable: its format and its content.
Part = tuple[str, Any]


@dataclass(frozen=True)
class KernelParts:
    """A kernel of a serialised ChipCallable; ``part`` contains its code."""

    part: Part
    core_type: CoreType
    signature: tuple[Parameter, ...] | None
    name: str


@dataclass(frozen=True)
class ChipParts:
    """A ChipCallable whose functions are serialised: reading it runs and imports none of them."""

    orchestration: Part
    kernels: Mapping[int, KernelParts]
    signature: tuple[Parameter, ...] | None
    name: str
    argument_names: tuple[str, ...] | None

    def pack(self) -> bytes:
        """Return the bytes, for a process of this host."""
        return pickle.dumps(self)

    @classmethod
    def unpack(cls, content: bytes) -> ChipParts:
        """Return the parts from the result of :meth:`pack` in another process of this host."""
        found = pickle.loads(content)
        assert isinstance(found, cls)
        return found


def chip_to_bytes(chip: ChipCallable, *, serialise: bool) -> bytes:
    """Serialise ``chip``. Raises UsageError for a function that cannot be serialised.

    ``serialise``: send all functions by code, even those that have an import path.
    """
    kernels = {
        func_id: KernelParts(
            _part(child.binary, serialise), child.core_type, child.signature, child.name
        )
        for func_id, child in chip.children.items()
    }
    orchestration = _part(chip.orchestration, serialise)
    return ChipParts(orchestration, kernels, chip.signature, chip.name, chip.argument_names).pack()


def chip_from_bytes(content: bytes) -> ChipCallable:
    """Return the ChipCallable. Raises NotImportableError for a function that cannot be imported."""
    parts = ChipParts.unpack(content)
    kernels = {
        func_id: CoreCallable(_read(one.part), one.core_type, one.signature, one.name)
        for func_id, one in parts.kernels.items()
    }
    orchestration = _read(parts.orchestration)
    return ChipCallable(orchestration, kernels, parts.signature, parts.name, parts.argument_names)


def _part(
    part: KernelSource | OrchestrationSource | Path | Callable[..., Any], serialise: bool
) -> Part:
    if isinstance(part, OrchestrationSource):
        content = (os.path.abspath(part.path), part.function_name, part.options, part.api)
        return "orchestration", content
    if isinstance(part, KernelSource):
        return "kernel", (os.path.abspath(part.path), part.options)
    if isinstance(part, Path):
        return "binary", os.path.abspath(part)
    return _function(part, serialise)


def _function(function: Callable[..., Any], serialise: bool) -> Part:
    path = None if serialise else _path_of(function)
    if path is not None:
        return "import", (path, fingerprint(imported(path)))
    try:
        return "serialised", serialised(function)
    except Exception as error:
        raise UsageError(
            f"{getattr(function, '__qualname__', function)} cannot be serialised: {error}; change "
            "the objects that it uses, or register the ChipCallable before init() with "
            "start_method='fork'",
            name="target",
            value=function,
        ) from error


def _path_of(function: Callable[..., Any]) -> str | None:
    """Return the import path of a function, even if a kernel object has taken its name."""
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


def _read(part: Part) -> Any:
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
