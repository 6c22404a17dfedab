"""Kernels and orchestrations of the vector example; paths are relative to this file."""


def _kernels(variant: str) -> list[dict[str, object]]:
    """List the kernels that take addresses (variant ""), or tensors (variant "_tensors")."""
    return [
        {"func_id": func_id, "source": f"aiv{variant}/{name}.cpp", "core_type": "aiv"}
        for func_id, name in enumerate(("add", "add_scalar", "multiply"))
    ]


# One folder serves every runtime: the selected runtime determines the kernels and the
# orchestration.
KERNELS = {
    "host_build_graph": _kernels(""),
    "aicpu_build_graph": _kernels(""),
    "tensormap_and_ringbuffer": _kernels("_tensors"),
}

ORCHESTRATION = {
    "host_build_graph": {
        "source": "orchestration/host_build_graph.cpp",
        "function_name": "build_vector_graph",
    },
    "aicpu_build_graph": {
        "source": "orchestration/aicpu_build_graph.cpp",
        "function_name": "build_vector_graph",
    },
    "tensormap_and_ringbuffer": {
        "source": "orchestration/tensormap_and_ringbuffer.cpp",
        "function_name": "aicpu_orchestration_entry",
    },
}
