"""Kernels and orchestration of batch paged attention; paths are relative to this file."""

KERNELS = [
    {"func_id": 0, "name": "HUB", "source": "aiv/hub.cpp", "core_type": "aiv"},
    {"func_id": 1, "name": "QK", "source": "aic/query_key.cpp", "core_type": "aic"},
    {"func_id": 2, "name": "SF", "source": "aiv/softmax.cpp", "core_type": "aiv"},
    {"func_id": 3, "name": "PV", "source": "aic/weights_value.cpp", "core_type": "aic"},
    {"func_id": 4, "name": "UP", "source": "aiv/update.cpp", "core_type": "aiv"},
]

ORCHESTRATION = {
    "source": "orchestration/batch_paged_attention.cpp",
    "function_name": "aicpu_orchestration_entry",
}

RUNTIME_CONFIG = {
    "runtime": "tensormap_and_ringbuffer",
    "aicpu_thread_num": 4,  # three schedulers and the orchestrator
}
