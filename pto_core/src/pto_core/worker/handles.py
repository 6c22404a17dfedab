"""The identity of a callable: a digest of 32 bytes, a kind and a namespace.

The digest of a function with an import path is computed from the path and the code, so it is equal
on every host. The digest of a function that travels by code is computed from its bytes, the digest
of an inherited function from its name and registration number, and the digest of a ChipCallable
from its content.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from pto_core._worker import CallableKind, CallableSpace
from pto_core.errors import RightsError, UsageError
from pto_core.errors.plain_functions import require_plain
from pto_core.errors.values import shown
from pto_core.kernels import ChipCallable, CoreCallable
from pto_core.kernels.callables import digest_of
from pto_core.worker.chip_delivery import chip_from_bytes, chip_to_bytes
from pto_core.worker.hosts import RemoteCallable
from pto_core.worker.serialisation import (
    IsKnown,
    NotImportableError,
    checked_path,
    deserialised,
    fingerprint,
    import_path,
    imported,
    imported_version,
    is_of_main,
    serialised,
)
from pto_core.worker.tasks import Task
from pto_core.worker.unpicklable import culprit

_registrations = itertools.count()


@dataclass(frozen=True)
class Delivery:
    """A way in which a child obtains a callable that it did not inherit. The object can be pickled.

    ``fingerprint``: the fingerprint of the code in the parent, because the child may import another
    version. If it is None, the parent does not know the code, and the child uses its own version.
    ``imports``: the modules that may define an imported object; None means every module.
    """

    way: Literal["import", "serialised", "chip"]
    content: str | bytes
    fingerprint: bytes | None = None
    imports: tuple[str, ...] | None = None

    def materialise(self) -> Any:
        """Load the callable in the child.

        Raises NotImportableError if the imported code differs or does not exist, and RightsError
        if ``imports`` does not permit it.
        """
        if isinstance(self.content, str):
            if self.fingerprint is None:
                return runnable(object_at(self.content, self.imports))
            return runnable(imported_version(self.content, self.fingerprint, self.imports))
        if self.way == "chip":
            return chip_from_bytes(self.content)
        return runnable(deserialised(self.content))


def materialised(deliveries: Sequence[Delivery]) -> Any:
    """Return the callable by the first delivery that works; raise the error of the last one."""
    for delivery in deliveries[:-1]:
        with contextlib.suppress(NotImportableError, RightsError):
            return delivery.materialise()
    return deliveries[-1].materialise()


def runnable(target: Any) -> Any:
    """Return the function that a child calls with the arguments of a task."""
    return target.run if isinstance(target, Task) else target


@dataclass(frozen=True)
class Identity:
    """The identity of a callable. Without ``delivery``, only forked children have the callable."""

    digest: bytes
    kind: CallableKind
    space: CallableSpace
    name: str
    delivery: Delivery | None


def identity(
    target: object, *, serialise: bool, inherits: bool, is_known: IsKnown | None = None
) -> Identity:
    """Return the identity of ``target``; raise UsageError if no child could run it.

    ``inherits``: the children are not forked yet, so they will inherit the object. ``is_known``:
    the classes that forked children have.
    """
    if isinstance(target, ChipCallable):
        return _of_chip(target, serialise=serialise, inherits=inherits)
    if isinstance(target, RemoteCallable):
        return _remote(target)
    if isinstance(target, str):
        return _imported(target, object_at(target))
    if isinstance(target, CoreCallable) or not callable(target):
        is_kernel = isinstance(target, CoreCallable)
        kernel = (
            ": it is a kernel, which runs on a core of a chip; submit it in device.run(), or write "
            "@task in the place of @kernel for a process of the Worker"
        )
        raise UsageError(
            f"{shown(target)} cannot be registered{kernel if is_kernel else ''}; pass a function, "
            "its import path 'module:qualname', or a ChipCallable",
            name="target",
            value=target,
        )
    require_plain("function", target)
    path = None if serialise else import_path(target)
    if path is not None and not (inherits and is_of_main(path)):
        return _imported(path, target)
    return unimported(target, inherits=inherits and not serialise, is_known=is_known)


def unimported(target: Any, *, inherits: bool, is_known: IsKnown | None = None) -> Identity:
    """Return the identity of a function without an import path of its own."""
    return _inherited(target) if inherits else _of_bytes(target, is_known)


def by_code(target: object, is_known: IsKnown | None = None) -> Delivery:
    """Return the delivery of ``target`` by code; raise UsageError."""
    if isinstance(target, ChipCallable):
        return Delivery("chip", chip_to_bytes(target, serialise=True))
    try:
        return Delivery("serialised", serialised(target, is_known))
    except Exception as error:
        name = name_of(target)
        path, _ = culprit([(name, target)], partial(serialised, is_known=is_known))
        where = "" if path == name else f" ({path})"
        raise UsageError(
            f"{name} cannot be serialised: {error}{where}; change the objects that it "
            "uses, or, with start_method='fork', register it before init() without serialise=True",
            name="target",
            value=target,
        ) from error


def name_of(target: object) -> str:
    """Return the name of a callable for messages."""
    if isinstance(target, ChipCallable | RemoteCallable):
        return target.name
    while isinstance(target, partial):
        target = target.func
    return str(getattr(target, "__qualname__", None) or type(target).__qualname__)


def _of_chip(chip: ChipCallable, *, serialise: bool, inherits: bool) -> Identity:
    delivery = None
    if not inherits:
        delivery = Delivery("chip", chip_to_bytes(chip, serialise=serialise))
    functions = (chip.function, *(chip.children[index].function for index in sorted(chip.children)))
    code = [fingerprint(function) for function in functions if function is not None]
    digest = digest_of(chip.digest, *code) if code else chip.digest
    return Identity(digest, CallableKind.CHIP, CallableSpace.LOCAL_CHIP, chip.name, delivery)


def object_at(path: str, permitted: Sequence[str] | None = None) -> Any:
    """Return the callable at an import path; raise UsageError.

    ``permitted``: the modules that may define it, as in ``imported``, which raises RightsError.
    """
    checked_path(path)
    try:
        found = imported(path, permitted)
    except RightsError:
        raise
    except Exception as error:
        raise UsageError(
            f"{path!r} cannot be imported: {type(error).__name__}: {error}",
            name="target",
            value=path,
        ) from error
    if not callable(found):
        raise UsageError(f"{path!r} is {found!r}, which cannot be called", name="target")
    require_plain("function", found)
    return found


def _imported(path: str, target: Any) -> Identity:
    kind, code = CallableKind.PYTHON_IMPORT, fingerprint(target)
    delivery = Delivery("import", path, code)
    name = path.partition(":")[2]
    digest = digest_of(kind.name, path, code)
    return Identity(digest, kind, CallableSpace.LOCAL_PYTHON, name, delivery)


def _remote(target: RemoteCallable) -> Identity:
    kind, space = CallableKind.PYTHON_IMPORT, CallableSpace.REMOTE_TASK_DISPATCHER
    digest = digest_of(space.name, target.path)
    return Identity(digest, kind, space, target.name, Delivery("import", target.path))


def _of_bytes(target: Callable[..., Any], is_known: IsKnown | None) -> Identity:
    kind, delivery = CallableKind.PYTHON_SERIALISED, by_code(target, is_known)
    digest = digest_of(kind.name, delivery.content)
    return Identity(digest, kind, CallableSpace.LOCAL_PYTHON, name_of(target), delivery)


def _inherited(target: Callable[..., Any]) -> Identity:
    kind, name = CallableKind.PYTHON_INHERITED, name_of(target)
    full_name = f"{getattr(target, '__module__', '')}:{name}"
    digest = digest_of(kind.name, full_name, str(next(_registrations)))
    return Identity(digest, kind, CallableSpace.LOCAL_PYTHON, name, None)
