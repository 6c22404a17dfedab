"""Kernels and orchestration of the Python vector example; paths are relative to this file."""

KERNELS = [
    {"func_id": 0, "source": "vector.py", "function_name": "add", "core_type": "aiv"},
    {"func_id": 1, "source": "vector.py", "function_name": "add_scalar", "core_type": "aiv"},
    {"func_id": 2, "source": "vector.py", "function_name": "multiply", "core_type": "aiv"},
]

ORCHESTRATION = {"source": "vector.py", "function_name": "graph"}
