"""The blueprint of a remote Worker: plain data from which another host builds it.

It contains the Worker's children, its callables, and the settings that the program passed. The
other host determines all other settings.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from pto_core._worker import CallableSpace
from pto_core.config import load_with_plugins
from pto_core.config.options import LAUNCHER_SETTINGS
from pto_core.errors import UsageError
from pto_core.toolchain.source_folders import SourceFolders
from pto_core.worker.chip_delivery import chip_to_bytes
from pto_core.worker.handles import Delivery, by_code
from pto_core.worker.hosts import RemoteCallable
from pto_core.worker.registry import Registration
from pto_core.worker.serialisation import fingerprint, import_path, is_of_main
from pto_transport_zmq.remote.callables import (
    AnyDelivery,
    ChipSender,
    Digest,
    PortableChip,
    SerialisedFunction,
    to_local,
)
from pto_transport_zmq.remote.requests import DELIVERIES_MAX, Deliver, to_sent
from pto_transport_zmq.remote.values import Name, Natural, Record, Text, Value, from_value, to_value

if TYPE_CHECKING:
    from pto_core.worker.children import NestedWorker

BLUEPRINT_BYTES_MAX = 2**28
CHILDREN_MAX = 1024
CALLABLES_MAX = 2**14

_Identity = Annotated[bytes, msgspec.Meta(min_length=16, max_length=16)]


class CallableRecord(Record, frozen=True):
    """A registered callable: the members of its handle, and its deliveries to the other host."""

    registration: _Identity
    digest: Digest
    kind: Natural
    space: Natural
    name: Name
    deliveries: Annotated[list[AnyDelivery], msgspec.Meta(min_length=1, max_length=DELIVERIES_MAX)]


class Blueprint(Record, frozen=True):
    """The description of a Worker that was not started. Its handles name it by ``identity``."""

    level: Natural
    device_ids: Annotated[list[Natural], msgspec.Meta(max_length=CHILDREN_MAX)]
    sub_workers: Annotated[int, msgspec.Meta(ge=0, le=CHILDREN_MAX)]
    settings: Annotated[dict[Text, Value], msgspec.Meta(max_length=CHILDREN_MAX)]
    identity: _Identity
    callables: Annotated[list[CallableRecord], msgspec.Meta(max_length=CALLABLES_MAX)]
    workers: Annotated[list[Blueprint], msgspec.Meta(max_length=CHILDREN_MAX)]

    @property
    def process_count(self) -> int:
        """The number of processes of the Worker and of all children below it."""
        own = 1 + len(self.device_ids) + self.sub_workers
        return own + sum(worker.process_count for worker in self.workers)

    @property
    def plain_settings(self) -> dict[str, Any]:
        """The settings as plain values."""
        return {key: from_value(value) for key, value in self.settings.items()}

    def all_callables(self) -> Iterable[CallableRecord]:
        """Yield the callables of the Worker and of all Workers below it."""
        yield from self.callables
        for worker in self.workers:
            yield from worker.all_callables()


def blueprint_of(worker: NestedWorker) -> Blueprint:
    """Return the blueprint of a Worker that was not started.

    Raises UsageError for a callable or a setting that cannot be sent to another host.
    """
    settings = worker.settings
    registrations = worker.registry.registrations()
    has_chips = any(one.identity.space == CallableSpace.LOCAL_CHIP for one in registrations)
    chips = ChipSender(load_with_plugins(settings.given)) if has_chips else None
    return Blueprint(
        settings.level,
        list(settings.device_ids),
        settings.sub_workers,
        {k: to_value(v) for k, v in settings.given.items() if k not in LAUNCHER_SETTINGS},
        worker.registry.live.worker,
        [_record(one, chips) for one in registrations],
        [_blueprint_below(one) for one in worker.nested],
    )


def _blueprint_below(worker: NestedWorker) -> Blueprint:
    """Return the blueprint of a Worker below a remote Worker."""
    if worker.settings.other_host is not None:
        raise UsageError(
            f"a Worker for {worker.settings.other_host} is below a Worker on another host; add it "
            "to a Worker of this program",
            name="host",
        )
    if worker.settings.has_config:
        raise UsageError(
            "a Worker below a remote Worker has a config, which cannot be sent to another host; "
            "pass its settings by name",
            name="config",
        )
    if worker.policy is not None:
        raise UsageError(
            "a Worker below a remote Worker has a policy that is a function, which cannot be sent "
            "to another host; pass the name of an installed policy",
            name="policy",
        )
    return blueprint_of(worker)


def shipped(registrations: Iterable[Registration]) -> list[CallableRecord]:
    """Return the callables of a Worker for its child on another host; raise UsageError."""
    return [_record(one, None) for one in registrations]


def deliveries_of(registration: Registration) -> tuple[Delivery, ...]:
    """Return the ways in which a callable reaches another host, in the order to try.

    A function with an import path is imported if the other host has the same code; otherwise it
    travels by code. The same holds for the functions of a chip callable. Raises UsageError if a
    function cannot be serialised.
    """
    target = registration.target
    if isinstance(target, RemoteCallable):
        return registration.deliveries()
    if registration.identity.space == CallableSpace.LOCAL_CHIP:
        imported = Delivery("chip", chip_to_bytes(target, serialise=False))
    else:
        path = import_path(target)
        if path is None or is_of_main(path):
            return (by_code(target),)
        imported = Delivery("import", path, fingerprint(target))
    try:
        return imported, by_code(target)
    except UsageError:  # no error: the import may succeed
        return (imported,)


def _record(registration: Registration, chips: ChipSender | None) -> CallableRecord:
    identity = registration.identity
    sent = (to_sent(one, chips) for one in deliveries_of(registration))
    return CallableRecord(
        registration.handle.registration,
        identity.digest,
        int(identity.kind),
        int(identity.space),
        identity.name,
        # All deliveries of a chip callable without functions are equal: send one.
        [one for one, _ in itertools.groupby(sent)],
    )


def check_python(python: tuple[int, int], received: Iterable[CallableRecord | Deliver]) -> None:
    """Raise UsageError for a function by code from a host with another version of Python."""
    here = sys.version_info[:2]
    parts = (
        part
        for one in received
        for delivery in one.deliveries
        for part in (delivery.parts if isinstance(delivery, PortableChip) else (delivery,))
    )
    if python != here and any(isinstance(part, SerialisedFunction) for part in parts):
        raise UsageError(
            f"the parent's host has Python {_dotted(python)}, this host {_dotted(here)}; functions "
            "that travel by code need the same version on both",
            name="python",
        )


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def local_deliveries(
    record: CallableRecord, folders: SourceFolders, imports: tuple[str, ...] | None
) -> list[Delivery]:
    """Return the deliveries of a record; files are written to ``folders``."""
    return [to_local(one, folders, imports) for one in record.deliveries]
