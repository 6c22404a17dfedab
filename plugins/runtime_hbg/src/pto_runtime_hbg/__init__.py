"""Build-graph runtime variants: a program on the host or on an AICPU submits tasks and edges."""

from pto_runtime_hbg.variants import aicpu_build_graph, host_build_graph

__all__ = ["aicpu_build_graph", "host_build_graph"]
