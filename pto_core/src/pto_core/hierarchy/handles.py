"""What a callable is known by: 32 bytes of digest, a kind and a namespace.

An import path is hashed with its kind and is the same on every host; a serialised function is
hashed by its bytes, a function that children inherit by its name and the number of its
registration, a chip's by all its content.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from pto_core._hierarchy import CallableKind, CallableSpace
from pto_core.errors import UsageError
from pto_core.hierarchy.chip_delivery import chip_from_bytes, chip_to_bytes
from pto_core.hierarchy.serialisation import deserialised, import_path, imported, serialised
from pto_core.hierarchy.tasks import Task
from pto_core.kernels import ChipCallable, CoreCallable
from pto_core.kernels.digest import digest_of, function_digest

_registrations = itertools.count()


@dataclass(frozen=True)
class Delivery:
    """How a child that runs already gets a callable; plain data that pickles.

    ``fingerprint``: of the code that the parent means, where the child might have another.
    """

    way: Literal["import", "serialised", "chip"]
    content: str | bytes
    fingerprint: bytes | None = None

    def materialise(self) -> Any:
        """Give the object, in the child; raises whatever is in the way."""
        if self.way == "serialised":
            assert isinstance(self.content, bytes)
            return runnable(deserialised(self.content))
        if self.way == "chip":
            assert isinstance(self.content, bytes)
            return chip_from_bytes(self.content)
        path = str(self.content)
        found = imported(path)
        if self.fingerprint is not None and _fingerprint(found) != self.fingerprint:
            raise UsageError(
                f"{path} is not the same in the child, which was started before it changed; "
                "register it with serialise=True, or before init()"
            )
        return runnable(found)


def runnable(target: Any) -> Any:
    """Give what a child calls with the arguments of a task."""
    return target.run if isinstance(target, Task) else target


@dataclass(frozen=True)
class Identity:
    """What a handle is made from. ``delivery`` None: a child has it from the fork or not at all."""

    digest: bytes
    kind: CallableKind
    space: CallableSpace
    name: str
    delivery: Delivery | None


def identity(target: object, *, serialise: bool, inherits: bool) -> Identity:
    """Say what ``target`` is known by; raises UsageError for what no child could run.

    ``inherits``: the children are yet to be forked, so they have every object of this process.
    """
    if isinstance(target, ChipCallable):
        return _of_chip(target, serialise=serialise, inherits=inherits)
    if isinstance(target, str):
        return _of_path(target)
    if isinstance(target, CoreCallable) or not callable(target):
        raise UsageError(
            f"{target!r} cannot be registered; give a function, its import path "
            "'module:qualname', or a ChipCallable",
            name="target",
            value=target,
        )
    if serialise:
        return _of_bytes(target)
    path = import_path(target)
    is_main = path is not None and path.startswith("__main__:")
    if path is not None and not is_main:
        return _imported(path, None)
    if inherits:
        return _inherited(target)
    if path is not None:
        return _imported(path, _fingerprint(target))
    raise UsageError(
        f"{name_of(target)} cannot be imported by children that run already or are spawned; "
        "register it before init(), define it at the top of a module, or pass serialise=True",
        name="target",
        value=target,
    )


def name_of(target: object) -> str:
    """Give the name of a callable, for messages."""
    if isinstance(target, ChipCallable):
        return target.name
    return str(getattr(target, "__qualname__", None) or type(target).__qualname__)


def _of_chip(chip: ChipCallable, *, serialise: bool, inherits: bool) -> Identity:
    delivery = None
    if not inherits:
        delivery = Delivery("chip", chip_to_bytes(chip, serialise=serialise))
    return Identity(chip.digest, CallableKind.CHIP, CallableSpace.LOCAL_CHIP, chip.name, delivery)


def _of_path(path: str) -> Identity:
    module, colon, name = path.partition(":")
    if not (colon and module and all(part.isidentifier() for part in name.split("."))):
        raise UsageError(
            f"{path!r} is no import path; write it as 'package.module:function'",
            name="target",
            value=path,
        )
    try:
        found = imported(path)
    except (ImportError, AttributeError) as error:
        raise UsageError(f"{path!r} cannot be imported: {error}", name="target", value=path) from (
            error
        )
    if not callable(found):
        raise UsageError(f"{path!r} is {found!r}, which cannot be called", name="target")
    return _imported(path, None)


def _imported(path: str, fingerprint: bytes | None) -> Identity:
    kind = CallableKind.PYTHON_IMPORT
    parts = (kind.name, path) if fingerprint is None else (kind.name, path, fingerprint)
    delivery = Delivery("import", path, fingerprint)
    name = path.partition(":")[2]
    return Identity(digest_of(*parts), kind, CallableSpace.LOCAL_PYTHON, name, delivery)


def _of_bytes(target: Callable[..., Any]) -> Identity:
    try:
        content = serialised(target)
    except Exception as error:
        raise UsageError(
            f"{name_of(target)} cannot be serialised: {error}; what it refers to must pickle, "
            "or register it before init() without serialise=True",
            name="target",
            value=target,
        ) from error
    kind = CallableKind.PYTHON_SERIALISED
    return Identity(
        digest_of(kind.name, content),
        kind,
        CallableSpace.LOCAL_PYTHON,
        name_of(target),
        Delivery("serialised", content),
    )


def _inherited(target: Callable[..., Any]) -> Identity:
    kind, name = CallableKind.PYTHON_INHERITED, name_of(target)
    full_name = f"{getattr(target, '__module__', '')}:{name}"
    digest = digest_of(kind.name, full_name, str(next(_registrations)))
    return Identity(digest, kind, CallableSpace.LOCAL_PYTHON, name, None)


def _fingerprint(target: Any) -> bytes:
    return function_digest(getattr(target, "function", target))
