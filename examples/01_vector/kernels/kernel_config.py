"""Kernels and orchestrations of the vector example; paths are relative to this file."""

# Under the build-graph runtimes a kernel gets addresses ...
_ADDRESSES = [
    {"func_id": 0, "name": "add", "source": "aiv/add.cpp", "core_type": "aiv"},
    {"func_id": 1, "name": "add_scalar", "source": "aiv/add_scalar.cpp", "core_type": "aiv"},
    {"func_id": 2, "name": "multiply", "source": "aiv/multiply.cpp", "core_type": "aiv"},
]

# ... and under tensormap_and_ringbuffer the tensors that its task was submitted with.
_TENSORS = [
    {**kernel, "source": kernel["source"].replace("aiv/", "aiv_tensors/")} for kernel in _ADDRESSES
]

# One folder serves every runtime: the selected one picks its kernels and its orchestration.
KERNELS = {
    "host_build_graph": _ADDRESSES,
    "aicpu_build_graph": _ADDRESSES,
    "tensormap_and_ringbuffer": _TENSORS,
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
