"""Kernels and orchestration of paged attention; paths are relative to this file."""

KERNELS = [
    {"func_id": 0, "source": "aic/score.cpp", "core_type": "aic"},
    {"func_id": 1, "source": "aiv/attend.cpp", "core_type": "aiv"},
    {"func_id": 2, "source": "aiv/normalise.cpp", "core_type": "aiv"},
]
ORCHESTRATION = {
    "source": "orchestration/paged_attention.cpp",
    "function_name": "aicpu_orchestration_entry",
}
RUNTIME_CONFIG = {"runtime": "tensormap_and_ringbuffer"}
