"""The child specs: kind, path and device of each child.

Chips or Workers come first, then places for Workers that join later, then SUB children.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from typing import Any, cast

from pto_core._worker import CallableSpace
from pto_core.plugins import load_remote_transport
from pto_core.worker.children import NestedWorker
from pto_core.worker.processes.starting import StartMethod
from pto_core.worker.remote_transport import Fence, Placements, RemoteChild, RemoteTransport
from pto_core.worker.settings import WorkerSettings, level_name


class Kind(IntEnum):
    """The kind of child that can run a task."""

    NEXT_LEVEL = 0
    SUB = 1


@dataclass(eq=False)
class ChildSpec:
    """One child: a chip has a ``device``, a Worker has a ``worker``, a SUB child has neither.

    ``remote``: for a Worker on another host, its sessions; the child process is then a relay.
    ``receives_use``: whether frames for the child state the use of each tensor in
    ``pto_tensor.use``. ``fence``: reports the end of the child's work that continues after the exit
    of its process. ``transport``: that of the relay which is, or will be, the process of the child;
    otherwise None.
    """

    path: str
    kind: Kind
    space: CallableSpace
    device: int | None = None
    worker: NestedWorker | None = None
    start_method: StartMethod = "fork"
    receives_use: bool = False
    fence: Fence | None = None
    remote: RemoteChild | None = None
    transport: RemoteTransport | None = None

    @property
    def is_spawned(self) -> bool:
        """Whether the child is a new interpreter, which inherits nothing."""
        return self.start_method == "spawn"

    @property
    def is_empty(self) -> bool:
        """Whether the place has no child; a Worker on another host can join there."""
        return self.transport is not None and self.remote is None

    @property
    def placements(self) -> Placements | None:
        """The launcher that places the host of the child, or None."""
        return None if self.remote is None else self.remote.placements


def child_specs(
    settings: WorkerSettings, path: str, workers: Sequence[NestedWorker]
) -> list[ChildSpec]:
    """List the children of the Worker at ``path``."""
    method = settings.config["start_method"]
    chips = [
        ChildSpec(
            f"{path}/chip{index}",
            Kind.NEXT_LEVEL,
            CallableSpace.LOCAL_CHIP,
            device=device,
            start_method=method,
        )
        for index, device in enumerate(settings.device_ids)
    ]
    nested: list[ChildSpec] = []
    for index, worker in enumerate(workers):
        name = f"{path}/{level_name(worker.level)}{index}"
        # The children of a template are successive, and share its launcher.
        is_next = bool(nested) and nested[-1].worker is worker
        nested.append(spec_of_worker(worker, name, method, nested[-1] if is_next else None))
    spare = settings.spare_places(has_remote=any(spec.remote is not None for spec in nested))
    places = [empty_place(settings, path, len(nested) + index) for index in range(spare)]
    subs = [
        ChildSpec(f"{path}/sub{index}", Kind.SUB, CallableSpace.LOCAL_PYTHON, start_method=method)
        for index in range(settings.sub_workers)
    ]
    return [*chips, *nested, *places, *subs]


def spec_of_worker(
    worker: NestedWorker, path: str, method: StartMethod, last: ChildSpec | None = None
) -> ChildSpec:
    """Return the spec of a child Worker, which is local or on another host.

    ``last``: the spec of another child of the same template, whose launcher this child uses.
    """
    if worker.settings.other_host is None:
        kind, space = Kind.NEXT_LEVEL, CallableSpace.LOCAL_PYTHON
        return ChildSpec(path, kind, space, worker=worker, start_method=method)
    transport = _transport(worker.settings.config["remote_transport"])
    remote = transport.child(worker, path, None if last is None else last.remote)
    return _behind_relay(transport, path, worker=worker, fence=remote.fence, remote=remote)


def empty_place(settings: WorkerSettings, path: str, number: int) -> ChildSpec:
    """Return the spec of a place of the Worker at ``path`` that has no child."""
    transport = _transport(settings.config["remote_transport"])
    return _behind_relay(transport, f"{path}/place{number}")


@cache
def _transport(name: str) -> RemoteTransport:
    """Return a transport; the search for it takes milliseconds, and each child and place asks."""
    return cast(RemoteTransport, load_remote_transport(name))


def _behind_relay(transport: RemoteTransport, path: str, **fields: Any) -> ChildSpec:
    return ChildSpec(
        path,
        Kind.NEXT_LEVEL,
        CallableSpace.LOCAL_PYTHON,
        start_method="spawn",
        receives_use=True,
        transport=transport,
        **fields,
    )
