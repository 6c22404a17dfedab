"""Kernels and orchestrations of the tiled GEMM; paths are relative to this file."""

# Under the build-graph runtimes a kernel gets addresses and pitches ...
_ADDRESSES = [
    {"func_id": 0, "name": "gemm_tile", "source": "aic/gemm_tile.cpp", "core_type": "aic"},
    {"func_id": 1, "name": "accumulate", "source": "aiv/accumulate.cpp", "core_type": "aiv"},
]

# ... and under tensormap_and_ringbuffer the views that its task was submitted with.
_TENSORS = [
    {"func_id": 0, "name": "gemm_tile", "source": "aic_tensors/gemm_tile.cpp", "core_type": "aic"},
    {"func_id": 1, "name": "accumulate", "source": "aiv_tensors/accumulate.cpp", "core_type": "aiv"},
]

KERNELS = {
    "host_build_graph": _ADDRESSES,
    "aicpu_build_graph": _ADDRESSES,
    "tensormap_and_ringbuffer": _TENSORS,
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
