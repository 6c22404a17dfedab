"""Kernels and orchestration of the matmul chain; paths are relative to this file."""

KERNELS = [
    {"func_id": 0, "name": "log_sqrt", "source": "aiv/log_sqrt.cpp", "core_type": "aiv"},
    {"func_id": 1, "name": "matmul", "source": "aic/matmul.cpp", "core_type": "aic"},
    {"func_id": 2, "name": "add_exp", "source": "aiv/add_exp.cpp", "core_type": "aiv"},
]

ORCHESTRATION = {
    "source": "orchestration/matmul_chain.cpp",
    "function_name": "build_matmul_chain",
}
