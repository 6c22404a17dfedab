"""Kernels and orchestrations of paged attention; paths are relative to this file."""


def _kernels(variant: str) -> list[dict[str, object]]:
    """List the kernels that take addresses (variant ""), or tensors (variant "_tensors")."""
    return [
        {"func_id": 0, "name": "QK", "source": f"aic{variant}/query_key.cpp", "core_type": "aic"},
        {"func_id": 1, "name": "SF", "source": f"aiv{variant}/softmax.cpp", "core_type": "aiv"},
        {
            "func_id": 2,
            "name": "PV",
            "source": f"aic{variant}/weights_value.cpp",
            "core_type": "aic",
        },
        {"func_id": 3, "name": "UP", "source": f"aiv{variant}/update.cpp", "core_type": "aiv"},
    ]


KERNELS = {
    "host_build_graph": _kernels(""),
    "aicpu_build_graph": _kernels(""),
    "tensormap_and_ringbuffer": _kernels("_tensors"),
}

ORCHESTRATION = {
    "host_build_graph": {
        "source": "orchestration/host_build_graph.cpp",
        "function_name": "build_paged_attention",
    },
    "aicpu_build_graph": {
        "source": "orchestration/aicpu_build_graph.cpp",
        "function_name": "build_paged_attention",
    },
    "tensormap_and_ringbuffer": {
        "source": "orchestration/tensormap_and_ringbuffer.cpp",
        "function_name": "aicpu_orchestration_entry",
    },
}
