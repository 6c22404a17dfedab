"""Kernels and orchestrations of the vector example; paths are relative to this file."""

KERNELS = [
    {"func_id": 0, "name": "add", "source": "aiv/add.cpp", "core_type": "aiv"},
    {"func_id": 1, "name": "add_scalar", "source": "aiv/add_scalar.cpp", "core_type": "aiv"},
    {"func_id": 2, "name": "multiply", "source": "aiv/multiply.cpp", "core_type": "aiv"},
]

# One folder serves both runtimes: the selected one picks its orchestration.
ORCHESTRATION = {
    "host_build_graph": {
        "source": "orchestration/host_build_graph.cpp",
        "function_name": "build_vector_graph",
    },
    "aicpu_build_graph": {
        "source": "orchestration/aicpu_build_graph.cpp",
        "function_name": "build_vector_graph",
    },
}
