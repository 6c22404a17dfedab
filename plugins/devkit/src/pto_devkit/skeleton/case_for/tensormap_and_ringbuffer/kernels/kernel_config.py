"""The kernels, the orchestration and the settings of the case. Paths are relative to this file."""

KERNELS = [
    {"func_id": 0, "name": "scale", "source": "aiv/scale.cpp", "core_type": "aiv"},
    {"func_id": 1, "name": "add", "source": "aiv/add.cpp", "core_type": "aiv"},
]

ORCHESTRATION = {
    "source": "orchestration/graph.cpp",
    "function_name": "aicpu_orchestration_entry",
}

RUNTIME_CONFIG = {
    "runtime": "tensormap_and_ringbuffer",
    "aicpu_thread_num": 4,
    "block_dim": 24,
}
