"""The Worker that a blueprint describes, built on the remote host, and the body of its process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pto_core._hierarchy import CallableKind, CallableSpace
from pto_core.config import load_core
from pto_core.hierarchy.children import ChildContext, WorkerBody
from pto_core.hierarchy.handles import Delivery, Identity, materialised
from pto_core.hierarchy.processes import ChildStart
from pto_core.hierarchy.registry import Registration, Registry
from pto_core.hierarchy.settings import worker_settings
from pto_core.hierarchy.worker_node import WorkerNode
from pto_core.toolchain.source_folders import SourceFolders
from pto_transport_zmq.remote.blueprint import Blueprint, CallableRecord, local_deliveries
from pto_transport_zmq.remote.program_modules import top_levels, use_modules, write_modules
from pto_transport_zmq.remote.rights import Rights
from pto_transport_zmq.remote.used_modules import UsedModule, check_used


@dataclass(frozen=True)
class ProgramModules:
    """The modules that were sent, in ``folder``, and the modules to compare with this host's."""

    folder: str | None
    names: Sequence[str]
    uses: Sequence[UsedModule]

    @classmethod
    def written(
        cls, folder: str, sources: Mapping[str, bytes], uses: Sequence[UsedModule]
    ) -> ProgramModules:
        """Write the sources to a new folder, if there are any."""
        if sources:
            write_modules(folder, sources)
        return cls(folder if sources else None, top_levels(sources), uses)

    def prepare(self) -> None:
        """Make the sent modules importable and compare the others; raise UsageError."""
        if self.folder is not None:
            use_modules(self.folder, self.names)
        check_used(self.uses)


@dataclass(frozen=True)
class RemoteWorkerBody:
    """The body of the Worker's process. User code is imported here, never in the gateway."""

    context: ChildContext
    blueprint: Blueprint
    callables: tuple[CallableRecord, ...]
    modules: ProgramModules
    rights: Rights

    def __call__(self, start: ChildStart) -> None:
        """Build the Worker, and run it until the gateway asks it to close."""
        start.doing("building the Worker")
        self.modules.prepare()
        folders = SourceFolders(load_core()["cache_dir"])
        imports = self.rights.imports
        deliveries = {
            one.digest: tuple(local_deliveries(one, folders, imports)) for one in self.callables
        }
        context = replace(self.context, deliveries=deliveries)
        WorkerBody(context, worker_of(self.blueprint, folders, self.rights))(start)


def worker_of(blueprint: Blueprint, folders: SourceFolders, rights: Rights) -> WorkerNode:
    """Return the Worker, not started. Raises the errors of ``Worker`` and of its callables.

    Raises RightsError for a setting that the client may not choose, before it loads a callable.
    """
    given = blueprint.plain_settings
    settings = worker_settings(
        blueprint.level,
        given.pop("backend", None),
        given.pop("runtime", None),
        blueprint.device_ids,
        blueprint.sub_workers,
        "PROCESS",
        None,
        given,
    )
    rights.check_settings(settings.config)
    node = WorkerNode(settings, None)
    node.registry = _registry(blueprint, folders, rights.imports)
    for worker in blueprint.workers:
        node.add(worker_of(worker, folders, rights))
    return node


def _registry(
    blueprint: Blueprint, folders: SourceFolders, imports: tuple[str, ...] | None
) -> Registry:
    registry = Registry(blueprint.identity)
    for record in blueprint.callables:
        deliveries = local_deliveries(record, folders, imports)
        registration = _registration(registry, record, deliveries)
        registry.add(registration)
        registry.publish(registration)
    return registry


def _registration(
    registry: Registry, record: CallableRecord, deliveries: Sequence[Delivery]
) -> Registration:
    kind, space = CallableKind(record.kind), CallableSpace(record.space)
    handle = registry.live.make(record.digest, kind, space, record.name, record.registration)
    identity = Identity(record.digest, kind, space, record.name, deliveries[-1])
    return Registration(handle, materialised(deliveries), identity)
