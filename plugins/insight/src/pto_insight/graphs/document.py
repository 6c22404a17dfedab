"""The graph as plain data; the keys are the members of tasks, edges, scopes and clusters."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pto_insight.graphs.logged_graph import LoggedGraph

SCHEMA_VERSION = 1


def document(graph: LoggedGraph) -> dict[str, Any]:
    """Return the graph as dicts, lists, texts and numbers. No address is part of it."""
    return {
        "version": SCHEMA_VERSION,
        "hazards": "full" if graph.log.is_full else "raw",
        "tasks": [{**asdict(task), "clusters": list(task.clusters)} for task in graph.tasks],
        "edges": [
            {
                "first": edge.first,
                "second": edge.second,
                "is_redundant": edge.is_redundant,
                "is_conservative": edge.is_conservative,
                "is_disjoint": edge.is_disjoint,
                "reasons": [
                    {**asdict(reason), "why": reason.why.name.lower()} for reason in edge.reasons
                ],
            }
            for edge in graph.edges
        ],
        "scopes": [asdict(scope) for scope in graph.structure.scopes],
        "clusters": [
            {**asdict(cluster), "tasks": list(cluster.tasks)}
            for cluster in graph.structure.clusters
        ],
    }
