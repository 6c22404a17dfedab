"""The child specs: kind, path and device of each child. Chips or Workers come first, then SUBs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pto_core._hierarchy import CallableSpace
from pto_core.hierarchy.children import NestedWorker
from pto_core.hierarchy.engine.events import Kind
from pto_core.hierarchy.fence import Fence
from pto_core.hierarchy.processes.plan import StartMethod
from pto_core.hierarchy.settings import WorkerSettings, level_name


@dataclass(frozen=True)
class ChildSpec:
    """One child: a chip has a ``device``, a Worker has a ``worker``, a SUB child has neither.

    ``receives_use``: ``pto_tensor.use`` states the use of each tensor in the frames of the child.
    ``fence``: reports when work of the child is over that continues after the exit of its process.
    """

    path: str
    kind: Kind
    space: CallableSpace
    device: int | None = None
    worker: NestedWorker | None = None
    start_method: StartMethod = "fork"
    receives_use: bool = False
    fence: Fence | None = None

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
        ChildSpec(
            f"{path}/{level_name(worker.level)}{index}",
            Kind.NEXT_LEVEL,
            CallableSpace.LOCAL_PYTHON,
            worker=worker,
            start_method=method,
        )
        for index, worker in enumerate(workers)
    ]
    subs = [
        ChildSpec(f"{path}/sub{index}", Kind.SUB, CallableSpace.LOCAL_PYTHON, start_method=method)
        for index in range(settings.sub_workers)
    ]
    return [*chips, *nested, *subs]
