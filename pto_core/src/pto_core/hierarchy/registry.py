"""The callables of one Worker: who has a handle, and what children are given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pto_core._hierarchy import CallableHandle, CallableSpace
from pto_core.errors import UsageError
from pto_core.hierarchy.handles import Delivery, Identity, identity, runnable
from pto_core.hierarchy.serialisation import imported


@dataclass(frozen=True)
class Registration:
    """A callable with its handle, as the parent keeps it."""

    handle: CallableHandle
    target: Any
    identity: Identity


class Registry:
    """Knows every live handle of the Worker number ``owner``.

    One digest may have several handles: it stays known until the last of them is gone.
    """

    def __init__(self, owner: int) -> None:
        self._owner = owner
        self._registrations: list[Registration] = []

    def make(self, target: object, *, serialise: bool, inherits: bool) -> Registration:
        """Make a registration that is not known yet; raises UsageError."""
        known = identity(target, serialise=serialise, inherits=inherits)
        if isinstance(target, str):
            target = imported(target)
        handle = CallableHandle(known.digest, known.kind, known.space, known.name, self._owner)
        return Registration(handle, target, known)

    def add(self, registration: Registration) -> None:
        """Know it from now on."""
        self._registrations.append(registration)

    def has(self, digest: bytes) -> bool:
        """Say whether some live handle has the digest: then its children have it too."""
        return any(one.identity.digest == digest for one in self._registrations)

    def digests(self) -> frozenset[bytes]:
        """Give what is known now, for :meth:`since`."""
        return frozenset(one.identity.digest for one in self._registrations)

    def since(self, known: frozenset[bytes], space: CallableSpace) -> list[Registration]:
        """Give what has been registered for a space since ``known`` was."""
        return [
            one
            for one in self._registrations
            if one.identity.space == space and one.identity.digest not in known
        ]

    def handle_of(self, target: object) -> CallableHandle | None:
        """Give a handle of this very object, if there is one."""
        found = (one.handle for one in self._registrations if one.target is target)
        return next(found, None)

    def target_of(self, handle: CallableHandle) -> Any:
        """Give what a live handle is a handle of."""
        return next(one.target for one in self._registrations if one.handle is handle)

    def remove(self, handle: CallableHandle) -> Registration:
        """Forget a handle, which is dead from now on; raises UsageError if it is not of here."""
        self.check(handle)
        found = next(one for one in self._registrations if one.handle is handle)
        self._registrations.remove(found)
        handle.is_alive = False
        return found

    def check(self, handle: object) -> None:
        """Raise UsageError unless ``handle`` is a live one of this Worker."""
        if not isinstance(handle, CallableHandle):
            raise UsageError(
                f"{handle!r} is no handle; give what Worker.register returned",
                name="handle",
                value=handle,
            )
        if handle.owner != self._owner:
            raise UsageError(
                f"{handle!r} is a handle of another Worker; register the callable with this one",
                name="handle",
                value=handle,
            )
        if not handle.is_alive:
            raise UsageError(
                f"{handle!r} is dead: it was unregistered; register the callable again",
                name="handle",
                value=handle,
            )

    def table(self, space: CallableSpace) -> Mapping[bytes, Any]:
        """Give what a child that is forked now inherits: objects by digest."""
        return {
            one.identity.digest: runnable(one.target)
            for one in self._registrations
            if one.identity.space == space
        }

    def deliveries(self, space: CallableSpace) -> Mapping[bytes, Delivery]:
        """Give what a child that is spawned now is told; raises UsageError.

        A callable that only a fork could hand over is refused by name.
        """
        found = {}
        for one in self._registrations:
            if one.identity.space != space:
                continue
            if one.identity.delivery is None:
                raise UsageError(
                    f"{one.identity.name} cannot reach children that are spawned; define it at "
                    "the top of a module, or register it with serialise=True"
                )
            found[one.identity.digest] = one.identity.delivery
        return found

    def close(self) -> None:
        """Let every handle die."""
        for one in self._registrations:
            one.handle.is_alive = False
        self._registrations.clear()
