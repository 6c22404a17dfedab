"""The callables of one Worker: their handles and deliveries."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any
from weakref import ref

from pto_core._worker import CallableHandle, CallableKind, CallableSpace, LiveCallables
from pto_core.errors import UsageError
from pto_core.kernels import ChipCallable
from pto_core.worker.handles import Delivery, Identity, by_code, identity, runnable, unimported
from pto_core.worker.serialisation import IsKnown, References, import_path, imported, is_of_main
from pto_core.worker.tasks import Task

_IDENTITY_BYTES = 16


@dataclass(frozen=True)
class Registration:
    """A callable with its handle and identity, in the parent.

    ``source``: the callable, or a weak reference to it. ``workers``: the child ids that have it;
    None: all children of its namespace. ``references``: for a ``Task`` that travels by code.
    """

    handle: CallableHandle
    source: Any
    identity: Identity
    workers: tuple[int, ...] | None = None
    references: References | None = None

    @property
    def target(self) -> Any:
        """The callable; None if it is a ``Task`` that no longer exists."""
        return self.source() if type(self.source) is _TaskRef else self.source

    @property
    def is_temporary(self) -> bool:
        """Whether the registration ends when nothing keeps it."""
        return type(self.source) is _TaskRef

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


class _TaskRef(ref):  # type: ignore[type-arg]
    """A weak reference to a task. ``key``: the id() of the task."""

    __slots__ = ("key",)

    key: int


class _RegistrationRef(ref):  # type: ignore[type-arg]
    """A weak reference to a temporary registration. ``copied``: it, without its callable."""

    __slots__ = ("copied",)

    copied: Registration


class Registry:
    """The registrations of one Worker; the driver checks handles against :attr:`live`.

    Several registrations may have the same digest. Children keep the callable until the last
    registration is removed.

    A registration that a submit makes for a ``@task`` that travels by code is temporary. The
    registry keeps it until the program drops the ``Task``, or until a value to which the function
    refers changes. Each submitted task keeps the registration and the ``Task`` until its end.
    :meth:`released` removes the registrations that nothing keeps. No Python code runs when a
    registration or a ``Task`` is destroyed, because an interrupt there would be lost.
    """

    def __init__(self, worker: bytes | None = None) -> None:
        self.live = LiveCallables(worker or os.urandom(_IDENTITY_BYTES))
        self._registrations: dict[bytes, Registration] = {}  # key: the registration id
        self._by_target: dict[int, Registration] = {}  # key: the id() of the target
        self._temporary: dict[bytes, _RegistrationRef] = {}
        self._dead: deque[_TaskRef] = deque()  # to tasks of temporary registrations
        self._unused: deque[_RegistrationRef] = deque()  # to those that nothing keeps

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
        is_of_submit: bool = False,
        is_known: IsKnown | None = None,
    ) -> Registration:
        """Create a registration without adding it. Raises UsageError."""
        references = References(target) if isinstance(target, Task) else None
        known = identity(target, serialise=serialise, inherits=inherits, is_known=is_known)
        if isinstance(target, str):
            target = imported(target)
        is_local = known.space != CallableSpace.REMOTE_TASK_DISPATCHER
        is_import = is_local and known.kind == CallableKind.PYTHON_IMPORT
        if is_import and self._has_other(known.digest, target):
            # a different function was registered under this import path
            known = unimported(target, inherits=inherits, is_known=is_known)
        handle = self.live.make(
            known.digest, known.kind, known.space, known.name, os.urandom(_IDENTITY_BYTES)
        )
        is_by_code = known.kind != CallableKind.PYTHON_IMPORT or is_of_main(import_path(target))
        if references is None or not (is_by_code or (is_of_submit and self.has(known.digest))):
            return Registration(handle, target, known, workers)
        source: Any = target
        if is_of_submit:
            source = _TaskRef(target, self._dead.append)
            source.key = id(target)
        return Registration(handle, source, known, workers, references)

    def renamed(self, handle: CallableHandle, name: str) -> CallableHandle:
        """Return a copy of a handle whose submits have another name."""
        parts = handle.digest, handle.kind, handle.namespace
        return self.live.make(*parts, name, handle.registration)

    def add(self, registration: Registration) -> None:
        """Add a registration; children that start from now on receive its callable."""
        if not registration.is_temporary:
            self._registrations[registration.handle.registration] = registration
            return
        added = _RegistrationRef(registration, self._unused.append)
        added.copied = replace(registration, source=None, references=None)
        self._temporary[registration.handle.registration] = added

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
        if (found := self._temporary.pop(registration.handle.registration, None)) is not None:
            self._unused.append(found)
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
        # the object may have the address of one that no longer exists
        return found if found.target is target and not found.references.have_changed() else None

    def released(self) -> list[Registration]:
        """Remove the temporary registrations that nothing keeps.

        Return those whose callable the children must drop.
        """
        while self._dead:
            dead = self._dead.popleft()
            found = self._by_target.get(dead.key)
            if found is not None and found.source is dead:
                del self._by_target[dead.key]
            del found
        gone = []
        while self._unused:
            one = self._unused.popleft().copied
            self._temporary.pop(one.handle.registration, None)
            self.live.remove(one.handle)
            if not self.has(one.identity.digest):
                gone.append(one)
        return gone

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
        """Return all registrations whose callable exists."""
        temporary = [known() for known in list(self._temporary.values())]
        existing = [one for one in temporary if one is not None and one.target is not None]
        return [*self._registrations.values(), *existing]

    def close(self) -> None:
        """Remove all registrations, because the Worker is closed."""
        self.live.close()
        self._registrations.clear()
        self._temporary.clear()
        self._by_target.clear()
