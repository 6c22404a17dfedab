"""Who the children of a Worker are, in the order of their numbers: chips or Workers, then SUBs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pto_core._hierarchy import CallableSpace
from pto_core.hierarchy.engine.events import Kind
from pto_core.hierarchy.settings import WorkerSettings, level_name

if TYPE_CHECKING:
    from pto_core.hierarchy.worker import Worker


@dataclass(frozen=True)
class Member:
    """One child: a chip with its ``device``, a ``worker``, or neither, a SUB child."""

    path: str
    kind: Kind
    space: CallableSpace
    device: int | None = None
    worker: Worker | None = None


def roster(settings: WorkerSettings, path: str, workers: Sequence[Worker]) -> list[Member]:
    """List the children."""
    chips = [
        Member(f"{path}/chip{index}", Kind.NEXT_LEVEL, CallableSpace.LOCAL_CHIP, device=device)
        for index, device in enumerate(settings.device_ids)
    ]
    below = [
        Member(
            f"{path}/{level_name(worker.level)}{index}",
            Kind.NEXT_LEVEL,
            CallableSpace.LOCAL_PYTHON,
            worker=worker,
        )
        for index, worker in enumerate(workers)
    ]
    subs = [
        Member(f"{path}/sub{index}", Kind.SUB, CallableSpace.LOCAL_PYTHON)
        for index in range(settings.sub_workers)
    ]
    return [*chips, *below, *subs]
