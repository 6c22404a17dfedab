"""A child that is a whole Worker, with children of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pto_core.hierarchy.children.service import serve

if TYPE_CHECKING:
    from pto_core.hierarchy.children.post import Post
    from pto_core.hierarchy.processes import ChildStart
    from pto_core.hierarchy.worker import Worker
    from pto_core.kernels import CallConfig


@dataclass(frozen=True)
class WorkerBody:
    """The body of a Worker's process: it runs graph functions ``graph(orch, args, config)``.

    ``worker`` has not been started; its children are forked here, after all memory of the levels
    above was mapped.
    """

    post: Post
    worker: Worker

    def __call__(self, start: ChildStart) -> None:
        """Be the child."""
        worker = self.worker
        start.doing("starting its own children")
        worker.start_as_child(start.path)

        def invoke(graph: Any, args: Any, config: CallConfig | None) -> None:
            worker.run(graph, args, config)

        try:
            serve(start, self.post, invoke)
        finally:
            worker.close()
