"""Resources: the options of Ray actors, and the number of agents that fit on nodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Resources = Mapping[str, float]

# Ray has options of its own for these names, and `resources` for all others.
_OPTIONS = {"CPU": "num_cpus", "GPU": "num_gpus", "memory": "memory"}
# Ray adds resources with these beginnings to each node for its own use.
_OF_RAY = ("node:", "object_store_memory")
_ANY_NUMBER = 1 << 31
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Node:
    """A node that is alive: its id, its address, and all its resources."""

    id: str
    host: str
    total: Resources

    def __str__(self) -> str:
        shown = {k: v for k, v in self.total.items() if not k.startswith(_OF_RAY)}
        return f"{self.host} (node {self.id[:8]}): {amounts(shown)}"


def amounts(resources: Resources) -> str:
    """Return resources as text, such as ``CPU=4, NPU=2, memory=64 GiB``."""
    listed = ", ".join(f"{name}={_amount(name, resources[name])}" for name in sorted(resources))
    return listed or "no resources"


def _amount(name: str, amount: float) -> str:
    return f"{amount / 2**30:,.4g} GiB" if name == "memory" else f"{amount:,.12g}"


def actor_options(resources: Resources) -> dict[str, Any]:
    """Return the options of an actor that reserves exactly these resources."""
    options: dict[str, Any] = {"num_cpus": 0, "resources": {}}
    for name, amount in resources.items():
        if name in _OPTIONS:
            options[_OPTIONS[name]] = int(amount) if name == "memory" else amount
        else:
            options["resources"][name] = amount
    return options


def capacity(nodes: Sequence[Node], used: Iterable[tuple[str, Resources]], need: Resources) -> int:
    """Return the number of agents with the resources ``need`` that fit on the nodes.

    ``used``: the node and the resources of each agent that keeps its resources.
    """
    left = {node.id: dict(node.total) for node in nodes}
    for node, resources in used:
        if node in left:
            for name, amount in resources.items():
                left[node][name] = left[node].get(name, 0) - amount
    return sum(_fitting(total, need) for total in left.values())


def _fitting(total: Resources, need: Resources) -> int:
    counts = (
        int(total.get(name, 0) / amount + _ROUNDING) for name, amount in need.items() if amount
    )
    return max(min(counts, default=_ANY_NUMBER), 0)
