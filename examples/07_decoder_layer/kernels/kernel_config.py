"""Kernels and orchestration of the decoder layer; paths are relative to this file."""


def _kernel(func_id: int, core_type: str, source: str) -> dict[str, object]:
    return {"func_id": func_id, "source": f"{core_type}/{source}.cpp", "core_type": core_type}


# `enum Function` in the orchestration has the same numbers.
KERNELS = [
    _kernel(0, "aiv", "reserve"),
    _kernel(1, "aiv", "rms_norm"),
    _kernel(2, "aic", "matmul"),
    _kernel(3, "aiv", "rotate_query"),
    _kernel(4, "aiv", "append_key_value"),
    _kernel(5, "aiv", "start_softmax"),
    _kernel(6, "aic", "query_key"),
    _kernel(7, "aiv", "softmax"),
    _kernel(8, "aic", "weights_value"),
    _kernel(9, "aiv", "update"),
    _kernel(10, "aiv", "add"),
    _kernel(11, "aiv", "gate"),
]

ORCHESTRATION = {
    "source": "orchestration/decoder_layer.cpp",
    "function_name": "aicpu_orchestration_entry",
}

RUNTIME_CONFIG = {
    "runtime": "tensormap_and_ringbuffer",
    "aicpu_thread_num": 4,  # three schedulers and the orchestrator
    "block_dim": 24,
}
