"""Kernels and orchestrations of the tiled GEMM; paths are relative to this file."""


def _kernels(variant: str) -> list[dict[str, object]]:
    """List the kernels that take addresses (variant ""), or tensors (variant "_tensors")."""
    return [
        {
            "func_id": 0,
            "name": "gemm_tile",
            "source": f"aic{variant}/gemm_tile.cpp",
            "core_type": "aic",
        },
        {
            "func_id": 1,
            "name": "accumulate",
            "source": f"aiv{variant}/accumulate.cpp",
            "core_type": "aiv",
        },
    ]


KERNELS = {
    "host_build_graph": _kernels(""),
    "aicpu_build_graph": _kernels(""),
    "tensormap_and_ringbuffer": _kernels("_tensors"),
}

ORCHESTRATION = {
    "host_build_graph": {
        "source": "orchestration/host_build_graph.cpp",
        "function_name": "build_gemm_graph",
    },
    "aicpu_build_graph": {
        "source": "orchestration/aicpu_build_graph.cpp",
        "function_name": "build_gemm_graph",
    },
    "tensormap_and_ringbuffer": {
        "source": "orchestration/tensormap_and_ringbuffer.cpp",
        "function_name": "aicpu_orchestration_entry",
    },
}
