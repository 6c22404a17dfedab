"""Build-graph runtime variants: explicit tasks and edges, built on the host or on an AICPU."""

from pto_runtime_hbg.variants import aicpu_build_graph, host_build_graph

__all__ = ["aicpu_build_graph", "host_build_graph"]
