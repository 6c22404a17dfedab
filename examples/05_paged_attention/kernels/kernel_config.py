"""Kernels and orchestration of paged attention; paths are relative to this file."""

KERNELS = [
    {"func_id": 0, "name": "QK", "source": "aic/query_key.cpp", "core_type": "aic"},
    {"func_id": 1, "name": "SF", "source": "aiv/softmax.cpp", "core_type": "aiv"},
    {"func_id": 2, "name": "PV", "source": "aic/weights_value.cpp", "core_type": "aic"},
    {"func_id": 3, "name": "UP", "source": "aiv/update.cpp", "core_type": "aiv"},
]

ORCHESTRATION = {
    "source": "orchestration/paged_attention.cpp",
    "function_name": "build_paged_attention",
}
