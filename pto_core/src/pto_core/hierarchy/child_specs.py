"""The child specs: kind, path and device of each child. Chips or Workers come first, then SUBs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pto_core._hierarchy import CallableSpace
from pto_core.hierarchy.children import NestedWorker
from pto_core.hierarchy.engine.events import Kind
from pto_core.hierarchy.fence import Fence
from pto_core.hierarchy.processes.plan import StartMethod
from pto_core.hierarchy.settings import WorkerSettings, level_name

if TYPE_CHECKING:
    from pto_core.remote.remote_child import RemoteChild


@dataclass(frozen=True)
class ChildSpec:
    """One child: a chip has a ``device``, a Worker has a ``worker``, a SUB child has neither.

    ``remote``: for a Worker on another host, its sessions; the child process is then a relay.
    ``receives_use``: whether frames for the child state the use of each tensor in
    ``pto_tensor.use``. ``fence``: reports the end of the child's work that continues after the exit
    of its process.
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

    @property
    def reason_bytes(self) -> int:
        """The size of the memory after the connection in which a relay explains its exit."""
        return 0 if self.remote is None else self.remote.reason_bytes

    @property
    def digest_bytes(self) -> int:
        """The size of the table that all relays share."""
        return 0 if self.remote is None else self.remote.digest_bytes

    @property
    def is_spawned(self) -> bool:
        """Whether the child is a new interpreter, which inherits nothing."""
        return self.start_method == "spawn"


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
    nested = [
        _of_worker(worker, f"{path}/{level_name(worker.level)}{index}", method)
        for index, worker in enumerate(workers)
    ]
    subs = [
        ChildSpec(f"{path}/sub{index}", Kind.SUB, CallableSpace.LOCAL_PYTHON, start_method=method)
        for index in range(settings.sub_workers)
    ]
    return [*chips, *nested, *subs]


def _of_worker(worker: NestedWorker, path: str, method: StartMethod) -> ChildSpec:
    kind, space = Kind.NEXT_LEVEL, CallableSpace.LOCAL_PYTHON
    if worker.settings.host is None:
        return ChildSpec(path, kind, space, worker=worker, start_method=method)
    # imported only if needed, so that local Workers start faster
    from pto_core.remote.remote_child import RemoteChild

    remote = RemoteChild(worker, path)
    return ChildSpec(
        path,
        kind,
        space,
        worker=worker,
        start_method="spawn",
        receives_use=True,
        fence=remote.fence,
        remote=remote,
    )
