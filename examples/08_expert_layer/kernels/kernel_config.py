"""Kernels and orchestration of the expert layer; paths are relative to this file."""

KERNELS = [
    {"func_id": 0, "name": "logits", "source": "aic/logits.cpp", "core_type": "aic"},
    {"func_id": 1, "name": "route", "source": "aiv/route.cpp", "core_type": "aiv"},
    {"func_id": 2, "name": "dispatch", "source": "aiv/dispatch.cpp", "core_type": "aiv"},
    {"func_id": 3, "name": "expert_matmul", "source": "aic/expert_matmul.cpp", "core_type": "aic"},
    {"func_id": 4, "name": "gate", "source": "aiv/gate.cpp", "core_type": "aiv"},
    {"func_id": 5, "name": "combine", "source": "aiv/combine.cpp", "core_type": "aiv"},
]

ORCHESTRATION = {
    "source": "orchestration/expert_layer.cpp",
    "function_name": "aicpu_orchestration_entry",
}

RUNTIME_CONFIG = {
    "runtime": "tensormap_and_ringbuffer",
    "aicpu_thread_num": 4,  # three schedulers and the orchestrator
    "block_dim": 24,
}
