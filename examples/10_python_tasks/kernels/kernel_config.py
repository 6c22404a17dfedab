"""Kernels and orchestration of the Python task example; paths are relative to this file."""

KERNELS = [
    {"func_id": 0, "source": "tasks.py", "function_name": "add", "core_type": "aiv"},
    {"func_id": 1, "source": "tasks.py", "function_name": "add_scalar", "core_type": "aiv"},
    {"func_id": 2, "source": "tasks.py", "function_name": "multiply", "core_type": "aiv"},
]

ORCHESTRATION = {"source": "tasks.py", "function_name": "graph"}

RUNTIME_CONFIG = {"runtime": "tensormap_and_ringbuffer"}
