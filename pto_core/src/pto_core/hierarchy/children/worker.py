"""A child that is a Worker with children of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from pto_core.hierarchy.children.service import serve

if TYPE_CHECKING:
    from pto_core.hierarchy.children.context import ChildContext
    from pto_core.hierarchy.children.tracing import Traced
    from pto_core.hierarchy.processes import ChildStart
    from pto_core.hierarchy.registry import Registry
    from pto_core.hierarchy.settings import WorkerSettings
    from pto_core.interfaces import Policy, Scheduler
    from pto_core.kernels import CallConfig


class NestedWorker(Protocol):
    """A Worker that is a child: the part that its parent and its own process use."""

    @property
    def level(self) -> int:
        """The level of the Worker."""

    @property
    def settings(self) -> WorkerSettings:
        """The settings of the Worker."""

    @property
    def registry(self) -> Registry:
        """The callables of the Worker."""

    @property
    def policy(self) -> Policy | Scheduler | None:
        """The placement policy that the program passed as a function."""

    @property
    def nested(self) -> Sequence[NestedWorker]:
        """The Workers that were added to this Worker."""

    @property
    def spawns(self) -> bool:
        """Whether the Worker, or a Worker at any depth below it, spawns its children."""

    def start_as_child(self, path: str) -> None:
        """Start the Worker's children, in its process; ``path`` is its name in messages."""

    def run_graph(self, graph: Any, args: Any, config: CallConfig | None) -> None:
        """Run a graph function and wait for its tasks."""

    @property
    def tracing(self) -> Traced:
        """The trace of the started Worker."""

    def close(self) -> None:
        """End the children."""


@dataclass(frozen=True)
class WorkerBody:
    """The body of a child process that is a Worker: it runs ``graph(orch, args, config)``.

    ``worker`` has not been started. Its children start in this process, after the memory of all
    levels above was mapped.
    """

    context: ChildContext
    worker: NestedWorker

    def __call__(self, start: ChildStart) -> None:
        """Run the Worker until its parent asks it to close."""
        start.doing("starting its own children")
        self.worker.start_as_child(start.path)
        try:
            serve(start, self.context, self.worker.run_graph, traced=self.worker.tracing)
        finally:
            self.worker.close()
