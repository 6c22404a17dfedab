"""Kernels and orchestration of the cluster example; paths are relative to this file."""

KERNELS = [
    {"func_id": 0, "name": "matmul", "source": "aic/matmul.cpp", "core_type": "aic"},
    {"func_id": 1, "name": "activate", "source": "aiv/activate.cpp", "core_type": "aiv"},
]

ORCHESTRATION = {
    "source": "orchestration/cube_vector.cpp",
    "function_name": "aicpu_orchestration_entry",
}

RUNTIME_CONFIG = {
    "runtime": "tensormap_and_ringbuffer",
    "aicpu_thread_num": 4,  # three schedulers and the orchestrator
}
