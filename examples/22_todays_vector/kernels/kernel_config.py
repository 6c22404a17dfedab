"""Kernels and orchestration of the vector example; paths are relative to this file."""

KERNELS = [
    {"func_id": func_id, "source": f"aiv/{name}.cpp", "core_type": "aiv"}
    for func_id, name in enumerate(("add", "add_scalar", "multiply"))
]
ORCHESTRATION = {
    "source": "orchestration/vector.cpp",
    "function_name": "aicpu_orchestration_entry",
}
RUNTIME_CONFIG = {"runtime": "tensormap_and_ringbuffer"}
