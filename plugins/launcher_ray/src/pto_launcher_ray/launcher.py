"""The launcher: starts agents, chooses those that fit a request, and reports their state."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from pto_core.errors import CapacityError, LinkError
from pto_core.interfaces import AgentCommand, Pending, PlacedAgent
from pto_launcher_ray.cluster import Cluster, RayAgent
from pto_launcher_ray.resources import Resources, amounts, capacity


class RayLauncher:
    """Starts agents on the nodes of a Ray cluster. ``address``: of the cluster, or None."""

    def __init__(self, agent: AgentCommand, address: str | None) -> None:
        self._cluster = Cluster(address, agent)
        self._numbers = itertools.count(1)
        self._placed: list[RayAgent] = []

    def place(self, count: int, resources: Resources) -> Sequence[RayAgent]:
        """Begin to start agents; Ray chooses their nodes, and prefers nodes without agents."""
        problem = self._cluster.problem
        if problem is not None:
            raise LinkError(problem)
        self._require_capacity(count, resources)
        made = [RayAgent(next(self._numbers), resources) for _ in range(count)]
        for agent in made:
            self._cluster.place(agent)
        self._placed += made
        return made

    def address(self, placement: RayAgent) -> PlacedAgent | Pending:
        """Return the address and key of an agent, or the reason why it has none."""
        if placement.agent is not None:
            return placement.agent
        reason = "Ray has not started the agent yet"
        if placement.resources:
            free = {name: self._cluster.free.get(name, 0) for name in placement.resources}
            reason += (
                f"; it needs {amounts(placement.resources)} on one node; free on all nodes "
                f"together: {amounts(free)}"
            )
        return Pending(reason)

    def lost(self, placement: RayAgent) -> str | None:
        """Return why an agent or its actor has ended, or cannot start.

        An agent that listens is not lost while the cluster does not answer: it may serve.
        """
        if placement.lost is not None or placement.agent is not None:
            return placement.lost or self._cluster.failure
        return self._cluster.problem

    def release(self, placement: RayAgent) -> None:
        """Begin to kill the actor of an agent, and so the agent."""
        if placement in self._placed:
            self._placed.remove(placement)
            self._cluster.release(placement)

    def close(self) -> None:
        """Kill all actors, and disconnect from the cluster."""
        self._placed.clear()
        self._cluster.close()

    def _require_capacity(self, count: int, resources: Resources) -> None:
        """Raise CapacityError if the nodes are too small for the agents of this launcher."""
        nodes = self._cluster.nodes
        used = [(one.found.node, one.resources) for one in self._placed if one.found is not None]
        waiting = sum(one.found is None and one.resources == resources for one in self._placed)
        fitting = max(capacity(nodes, used, resources) - waiting, 0)
        if count > fitting:
            each = "; ".join(map(str, nodes)) or "none"
            raise CapacityError(
                f"{count} hosts with {amounts(resources)} each were requested, but the Ray cluster "
                f"has resources for {fitting} beside the {len(self._placed)} hosts of this "
                f"launcher; its nodes: {each}; add nodes, or request fewer hosts or resources",
                name="resources",
                value=count,
                limit=fitting,
            )
