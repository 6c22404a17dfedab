"""The ctypes structures of the kit have the layout of the headers, field by field."""

from __future__ import annotations

import ctypes
import subprocess

from pto_devkit import abi

C_NAMES = {
    abi.Error: "pto_error",
    abi.Option: "pto_option",
    abi.HostRange: "pto_host_range",
    abi.CallConfig: "pto_call_config",
    abi.CoreMask: "pto_core_mask",
    abi.Topology: "pto_topology",
    abi.Payload: "pto_payload",
    abi.Dispatch: "pto_dispatch",
    abi.PollResult: "pto_poll_result",
    abi.Platform: "pto_platform",
    abi.KernelEntry: "pto_kernel_entry",
    abi.Run: "pto_run",
    abi.Task: "pto_task",
    abi.Buffer: "pto_buffer",
    abi.TensorData: "pto_tensor_data",
    abi.Param: "pto_param",
    abi.TensorTask: "pto_tensor_task",
    abi.Statistic: "pto_statistic",
    abi.RuntimeApi: "pto_runtime_api",
    abi.KernelSource: "pto_kernel_source",
    abi.CoreUsage: "pto_core_usage",
    abi.RunReport: "pto_run_report",
    abi.LeakReport: "pto_leak_report",
    abi.DeviceShape: "pto_device_shape",
    abi.ActivitySlot: "pto_activity_slot",
    abi.ActivityPage: "pto_activity_page",
    abi.Artefact: "pto_artefact",
    abi.Attachment: "pto_attachment",
    abi.BackendApi: "pto_backend_api",
    abi.FrameHead: "pto_frame",
    abi.FrameView: "pto_frame_view",
    abi.Answer: "pto_answer",
    abi.Bell: "pto_bell",
    abi.Connection: "pto_connection",
    abi.TransportApi: "pto_transport_api",
}

CONSTANTS = {
    "PTO_ABI_VERSION": abi.ABI_VERSION,
    "PTO_MAX_KERNEL_ARGS": abi.MAX_KERNEL_ARGS,
    "PTO_MAX_PAYLOAD": abi.MAX_PAYLOAD,
    "PTO_MAX_CORES": abi.MAX_CORES,
    "PTO_MAX_BLOCKS": abi.MAX_BLOCKS,
    "PTO_MAX_AICPU_THREADS": abi.MAX_AICPU_THREADS,
    "PTO_ACTIVITY_MAGIC": abi.ACTIVITY_MAGIC,
    "PTO_ACTIVITY_SLOTS": abi.ACTIVITY_SLOTS,
    "PTO_OK": abi.Status.OK,
    "PTO_PENDING": abi.Status.PENDING,
    **{f"PTO_ERROR_{s.name}": s for s in abi.Status if s > abi.Status.PENDING},
    **{f"PTO_STEP_{step.name}": step for step in abi.Step},
    **{f"PTO_CORE_{core.name}": core for core in abi.Core},
    **{f"PTO_BACKEND_{flag.name}": flag for flag in abi.BackendFlag},
    **{f"PTO_RUNTIME_{flag.name}": flag for flag in abi.RuntimeFlag},
    **{f"PTO_TRANSPORT_{flag.name}": flag for flag in abi.TransportFlag},
}


def assertions() -> list[str]:
    lines = [f"static_assert({name} == {int(value)}u);" for name, value in CONSTANTS.items()]
    for structure, c_name in C_NAMES.items():
        lines.append(f"static_assert(sizeof({c_name}) == {ctypes.sizeof(structure)});")
        for field in structure._fields_:
            member = getattr(structure, field[0])
            c_field = f"{c_name}, {field[0].rstrip('_')}"
            lines.append(f"static_assert(offsetof({c_field}) == {member.offset});")
            size = f"sizeof({c_name}::{field[0].rstrip('_')})"
            lines.append(f"static_assert({size} == {member.size});")
    return lines


def test_every_structure_of_the_kit_is_compared() -> None:
    structures = {
        value
        for value in vars(abi).values()
        if isinstance(value, type) and issubclass(value, ctypes.Structure)
    }
    assert structures - {ctypes.Structure} == set(C_NAMES)


def test_layouts_and_constants_are_those_of_the_headers(tmp_path, compiler, include) -> None:
    source = tmp_path / "mirror.cpp"
    headers = [f'#include "pto/abi/{name}.h"' for name in ("backend", "endpoint")]
    source.write_text("\n".join([*headers, *assertions()]))
    subprocess.run(
        [*compiler, "-std=c++20", "-fsyntax-only", f"-I{include}", str(source)], check=True
    )
