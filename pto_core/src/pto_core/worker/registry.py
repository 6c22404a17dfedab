"""The callables of one Worker: their handles and deliveries."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from pto_core._worker import CallableHandle, CallableKind, CallableSpace, LiveCallables
from pto_core.errors import UsageError
from pto_core.kernels import ChipCallable
from pto_core.worker.handles import Delivery, Identity, by_code, identity, runnable, unimported
from pto_core.worker.serialisation import References, import_path, imported, is_of_main
from pto_core.worker.tasks import Task

_IDENTITY_BYTES = 16


@dataclass(frozen=True)
class Registration:
    """A callable with its handle and identity, in the parent.

    ``workers``: the child ids that have it; None: all children of its namespace. ``references``:
    for a ``Task`` that travels by code.
    """

    handle: CallableHandle
    target: Any
    identity: Identity
    workers: tuple[int, ...] | None = None
    references: References | None = None

    def is_for(self, child: int, space: CallableSpace) -> bool:
        """Return whether a child whose namespace is ``space`` can run this callable."""
        if self.workers is not None:
            return child in self.workers
        return self.identity.space == space

    def deliveries(self) -> tuple[Delivery, ...]:
        """Return the deliveries for a child that did not inherit the callable, in order of use."""
        first = self.identity.delivery
        if first is None or first.way == "serialised" or self.workers is not None:
            return () if first is None else (first,)
        try:
            return first, by_code(self.target)
        except UsageError:  # the code cannot be serialised, but the import may work
            return (first,)


class Registry:
    """The registrations of one Worker; the driver checks handles against :attr:`live`.

    Several registrations may have the same digest. Children keep the callable until the last
    registration is removed.
    """

    def __init__(self, worker: bytes | None = None) -> None:
        self.live = LiveCallables(worker or os.urandom(_IDENTITY_BYTES))
        self._registrations: dict[bytes, Registration] = {}  # key: the registration id
        self._by_target: dict[int, Registration] = {}  # key: the id() of the target

    def __getstate__(self) -> Any:
        plain = [replace(one, references=None) for one in self._registrations.values()]
        return self.live.worker, plain

    def __setstate__(self, state: Any) -> None:
        worker, registrations = state
        self.__init__(worker)  # type: ignore[misc]
        for one in registrations:
            self.add(one)
            self.publish(one)

    def make(
        self,
        target: object,
        *,
        serialise: bool,
        inherits: bool,
        workers: tuple[int, ...] | None = None,
    ) -> Registration:
        """Create a registration without adding it. Raises UsageError."""
        references = References(target) if isinstance(target, Task) else None
        known = identity(target, serialise=serialise, inherits=inherits)
        if isinstance(target, str):
            target = imported(target)
        is_local = known.space != CallableSpace.REMOTE_TASK_DISPATCHER
        is_import = is_local and known.kind == CallableKind.PYTHON_IMPORT
        if is_import and self._has_other(known.digest, target):
            # a different function was registered under this import path
            known = unimported(target, inherits=inherits)
        handle = self.live.make(
            known.digest, known.kind, known.space, known.name, os.urandom(_IDENTITY_BYTES)
        )
        is_by_code = known.kind != CallableKind.PYTHON_IMPORT or is_of_main(import_path(target))
        return Registration(handle, target, known, workers, references if is_by_code else None)

    def add(self, registration: Registration) -> None:
        """Add a registration; children that start from now on receive its callable."""
        self._registrations[registration.handle.registration] = registration

    def publish(self, registration: Registration) -> None:
        """Make the handle of a registration live, because all children have the callable."""
        self._by_target[id(registration.target)] = registration
        target = registration.target
        scalars = target.declared_scalars() if isinstance(target, ChipCallable) else ()
        is_declared = any(code >= 0 for code in scalars)
        self.live.add(
            registration.handle, registration.workers or (), scalars if is_declared else ()
        )

    def discard(self, registration: Registration) -> None:
        """Undo :meth:`add` and :meth:`publish`."""
        self.live.remove(registration.handle)
        self._registrations.pop(registration.handle.registration, None)
        self._by_target = {
            key: one for key, one in self._by_target.items() if one is not registration
        }
        for one in self.registrations():
            if one.target is registration.target and self.live.has(one.handle):
                self._by_target[id(one.target)] = one

    def has(self, digest: bytes) -> bool:
        """Return whether a registration has the digest, so that children have the callable."""
        return any(one.identity.digest == digest for one in self.registrations())

    def _has_other(self, digest: bytes, target: object) -> bool:
        return any(
            one.identity.digest == digest and one.target is not target
            for one in self.registrations()
        )

    def of_child(self, child: int, space: CallableSpace) -> list[Registration]:
        """Return the registrations for a child whose namespace is ``space``."""
        return [one for one in self.registrations() if one.is_for(child, space)]

    def current(self, target: object) -> Registration | None:
        """Return a live registration of this object, or None if there is none or it is stale."""
        found = self._by_target.get(id(target))
        if found is None or found.references is None:
            return found
        return None if found.references.have_changed() else found

    def target_of(self, handle: object) -> Any:
        """Return the target of a live handle. Raises the errors of ``LiveCallables.check``."""
        self.live.check(handle)
        return self._registrations[handle.registration].target  # type: ignore[attr-defined]

    def remove(self, handle: object) -> Registration:
        """Remove the registration of a handle, which becomes invalid.

        Raises the errors of ``LiveCallables.check``.
        """
        self.live.check(handle)
        assert isinstance(handle, CallableHandle)
        found = self._registrations[handle.registration]
        self.discard(found)
        return found

    def drop_worker(self, child: int) -> None:
        """Remove a Worker that has left from the registrations that name it.

        A registration that names no other Worker is removed, and its handle becomes invalid.
        """
        for one in self.registrations():
            if one.workers is None or child not in one.workers:
                continue
            self.discard(one)
            left = tuple(number for number in one.workers if number != child)
            if left:
                kept = replace(one, workers=left)
                self.add(kept)
                self.publish(kept)

    def inherited(self, space: CallableSpace) -> Mapping[bytes, Any]:
        """Return the callables of a namespace by digest, for a forked child."""
        return {
            one.identity.digest: runnable(one.target)
            for one in self.registrations()
            if one.identity.space == space
        }

    def deliveries(self, space: CallableSpace) -> Mapping[bytes, tuple[Delivery, ...]]:
        """Return the deliveries of each callable of a namespace, for a spawned child.

        Callables that only forked children have are left out.
        """
        return {
            one.identity.digest: ways
            for one in self.registrations()
            if one.identity.space == space and (ways := one.deliveries())
        }

    def registrations(self) -> list[Registration]:
        """Return all registrations."""
        return list(self._registrations.values())

    def close(self) -> None:
        """Remove all registrations, because the Worker is closed."""
        self.live.close()
        self._registrations.clear()
        self._by_target.clear()
