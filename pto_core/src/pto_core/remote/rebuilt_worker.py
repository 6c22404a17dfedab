"""The Worker that a blueprint describes, built on the remote host, and the body of its process."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pto_core._hierarchy import CallableKind, CallableSpace
from pto_core.config import load_core
from pto_core.hierarchy.children import ChildContext, WorkerBody
from pto_core.hierarchy.handles import Identity, materialised
from pto_core.hierarchy.processes import ChildStart
from pto_core.hierarchy.registry import Registration, Registry
from pto_core.hierarchy.settings import worker_settings
from pto_core.hierarchy.worker_node import WorkerNode
from pto_core.remote.blueprint import Blueprint, CallableRecord, local_deliveries
from pto_core.toolchain.source_folders import SourceFolders


@dataclass(frozen=True)
class RemoteWorkerBody:
    """The body of the Worker's process. User code is imported here, never in the gateway."""

    context: ChildContext
    blueprint: Blueprint
    callables: tuple[CallableRecord, ...]

    def __call__(self, start: ChildStart) -> None:
        """Build the Worker, and run it until the gateway asks it to close."""
        start.doing("building the Worker")
        folders = SourceFolders(load_core()["cache_dir"])
        deliveries = {one.digest: tuple(local_deliveries(one, folders)) for one in self.callables}
        context = replace(self.context, deliveries=deliveries)
        WorkerBody(context, worker_of(self.blueprint, folders))(start)


def worker_of(blueprint: Blueprint, folders: SourceFolders) -> WorkerNode:
    """Return the Worker, not started. Raises the errors of ``Worker`` and of its callables."""
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
    node = WorkerNode(settings, None)
    node.registry = _registry(blueprint, folders)
    for worker in blueprint.workers:
        node.add(worker_of(worker, folders))
    return node


def _registry(blueprint: Blueprint, folders: SourceFolders) -> Registry:
    registry = Registry(blueprint.identity)
    for record in blueprint.callables:
        registration = _registration(registry, record, folders)
        registry.add(registration)
        registry.publish(registration)
    return registry


def _registration(
    registry: Registry, record: CallableRecord, folders: SourceFolders
) -> Registration:
    deliveries = local_deliveries(record, folders)
    kind, space = CallableKind(record.kind), CallableSpace(record.space)
    handle = registry.live.make(record.digest, kind, space, record.name, record.registration)
    identity = Identity(record.digest, kind, space, record.name, deliveries[-1])
    return Registration(handle, materialised(deliveries), identity)
