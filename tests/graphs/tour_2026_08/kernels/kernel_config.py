"""Kernels and orchestration of the tour; paths are relative to this file."""

KERNELS = [
    {"func_id": func_id, "source": f"{name}.cpp", "core_type": core}
    for func_id, (name, core) in enumerate(
        [("scale", "aiv"), ("rows", "aiv"), ("lane", "aiv"), ("cube", "aic")]
    )
]
ORCHESTRATION = {"source": "orchestration.cpp", "function_name": "aicpu_orchestration_entry"}
RUNTIME_CONFIG = {"runtime": "tensormap_and_ringbuffer"}
