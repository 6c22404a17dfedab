"""Kernels and orchestrations of the tiled GEMM; paths are relative to this file."""

KERNELS = [
    {"func_id": 0, "name": "gemm_tile", "source": "aic/gemm_tile.cpp", "core_type": "aic"},
    {"func_id": 1, "name": "accumulate", "source": "aiv/accumulate.cpp", "core_type": "aiv"},
]

ORCHESTRATION = {
    "host_build_graph": {
        "source": "orchestration/host_build_graph.cpp",
        "function_name": "build_gemm_graph",
    },
    "aicpu_build_graph": {
        "source": "orchestration/aicpu_build_graph.cpp",
        "function_name": "build_gemm_graph",
    },
}
