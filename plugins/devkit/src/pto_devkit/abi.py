"""The native ABI of ``pto/abi/*.h`` as ctypes structures.

Checks use it to call the function tables directly, in any order. The names are those of the headers
without ``pto_``; ``yield_`` avoids the Python keyword. A test compares every field with them.
"""

from __future__ import annotations

import ctypes
from ctypes import (
    CFUNCTYPE,
    POINTER,
    Structure,
    Union,
    c_char,
    c_char_p,
    c_int32,
    c_int64,
    c_size_t,
    c_uint8,
    c_uint16,
    c_uint32,
    c_uint64,
    c_void_p,
)
from enum import IntEnum, IntFlag

ABI_VERSION = 0
MAX_KERNEL_ARGS = 64
MAX_PAYLOAD = 16384
MAX_DIMS = 5
MAX_CORES = 72
MAX_BLOCKS = 24
MAX_AICPU_THREADS = 4
ACTIVITY_MAGIC = 0x41435450
ACTIVITY_SLOTS = 62
ALIGNMENT = 1024  # of device addresses, in bytes


class Status(IntEnum):
    """``pto_status``."""

    OK = 0
    PENDING = 1
    USAGE = 2
    CAPACITY = 3
    CYCLE = 4
    UNPUBLISHED = 5
    DEADLOCK = 6
    ORCHESTRATION = 7
    KERNEL = 8
    MEMORY = 9
    ADDRESS = 10
    LOAD = 11
    ABORTED = 12
    TIMEOUT = 13
    LOST = 14
    UNSUPPORTED = 15
    INTERNAL = 16


class Step(IntEnum):
    """The results of ``schedule_step``."""

    IDLE = 0
    PROGRESS = 1
    DONE = 2
    ERROR = 3


class Core(IntEnum):
    """The type of a core."""

    AIC = 0
    AIV = 1


class BackendFlag(IntFlag):
    """``pto_backend_api.capabilities``."""

    THREADS = 1
    DETERMINISTIC = 2
    CHECKING = 4
    CALLBACKS = 8
    SAME_PROCESS = 16
    TRACE_HASH = 32
    TRACE = 64
    PLANNING = 128
    ACTIVITY = 256
    STREAMS = 512


class RuntimeFlag(IntFlag):
    """``pto_runtime_api.capabilities``."""

    HOST_ORCHESTRATION = 1
    CONCURRENT_BUILD = 2
    EXPLICIT_EDGES = 4
    PUBLISH = 8
    SCOPES = 16
    BLOCKING_SUBMIT = 32
    TENSORS = 64
    CLUSTERS = 128
    RING_IDS = 256
    PLANNING = 512


MAX_TASK_SCALARS = 32
UINT8 = 5  # PTO_DTYPE_UINT8


class Tag(IntEnum):
    """``PTO_TAG_*``: the access of a task to a tensor. Only the submit uses it."""

    INPUT = 0
    OUTPUT = 1
    INOUT = 2
    OUTPUT_EXISTING = 3
    NO_DEP = 4
    SCALAR = 5


class Error(Structure):
    """``pto_error``."""

    _fields_ = (
        ("status", c_int32),
        ("func_id", c_int32),
        ("task", c_int64),
        ("other_task", c_int64),
        ("core", c_int32),
        ("line", c_int32),
        ("value", c_uint64),
        ("limit", c_uint64),
        ("file", c_char * 256),
        ("message", c_char * 952),
        ("vendor_function", c_char * 64),
        ("vendor_code", c_int32),
        ("reserved", c_int32),
    )


class Option(Structure):
    """``pto_option``."""

    _fields_ = (("key", c_char_p), ("value", c_char_p))


class HostRange(Structure):
    """``pto_host_range``."""

    _fields_ = (("address", c_uint64), ("bytes", c_uint64))


class CallConfig(Structure):
    """``pto_call_config``."""

    _fields_ = (
        ("block_dim", c_int32),
        ("aicpu_thread_num", c_int32),
        ("enable_l2_swimlane", c_int32),
        ("enable_dump_tensor", c_int32),
        ("enable_pmu", c_int32),
        ("enable_dep_gen", c_int32),
        ("enable_scope_stats", c_int32),
        ("output_prefix", c_char * 1024),
    )


class CoreMask(Structure):
    """``pto_core_mask``."""

    _fields_ = (("words", c_uint64 * 2),)

    def cores(self) -> list[int]:
        """Return the cores whose bits are set, in ascending order."""
        bits = self.words[0] | self.words[1] << 64
        return [core for core in range(128) if bits >> core & 1]


class Topology(Structure):
    """``pto_topology``."""

    _fields_ = (
        ("blocks", c_uint32),
        ("cores", c_uint32),
        ("schedulers", c_uint32),
        ("reserved", c_uint32),
        ("thread_cores", CoreMask * MAX_AICPU_THREADS),
        ("core_type", c_uint8 * MAX_CORES),
    )


class Payload(Structure):
    """``pto_payload``: only the header. In memory, ``num_args`` arguments of 64 bits follow it."""

    _fields_ = (
        ("kernel", c_uint64),
        ("task", c_uint64),
        ("cookie", c_uint64),
        ("func_id", c_int32),
        ("num_args", c_uint32),
        ("relative_args", c_uint64),
    )


class Dispatch(Structure):
    """``pto_dispatch``."""

    _fields_ = (("core", c_uint32), ("length", c_uint32), ("payload", c_void_p))


class PollResult(Structure):
    """``pto_poll_result``."""

    _fields_ = (("done", CoreMask), ("faulted", CoreMask))


class Platform(Structure):
    """``pto_platform``."""

    _fields_ = (
        ("abi_version", c_uint32),
        ("struct_size", c_uint32),
        ("self", c_void_p),
        ("topology", POINTER(Topology)),
        ("deterministic", c_uint32),
        ("tracing", c_uint32),
        ("checking", c_uint32),
        ("timing", c_uint32),
        ("clock", c_uint32),
        ("planning", c_uint32),
        ("tracks", c_void_p),
        ("steps", POINTER(c_uint64)),
        ("reserve", CFUNCTYPE(c_void_p, c_void_p, c_size_t)),
        ("release", CFUNCTYPE(None, c_void_p, c_void_p, c_size_t)),
        ("touched", CFUNCTYPE(c_size_t, c_void_p, c_void_p, c_size_t)),
        ("allocate", CFUNCTYPE(c_int32, c_void_p, c_size_t, POINTER(c_uint64))),
        ("free", CFUNCTYPE(c_int32, c_void_p, c_uint64)),
        ("allocate_ring", CFUNCTYPE(c_int32, c_void_p, c_size_t, POINTER(c_uint64))),
        ("copy_in", CFUNCTYPE(c_int32, c_void_p, c_uint64, c_void_p, c_size_t)),
        ("copy_out", CFUNCTYPE(c_int32, c_void_p, c_void_p, c_uint64, c_size_t)),
        ("check_value", CFUNCTYPE(c_int32, c_void_p, c_uint64, POINTER(Error))),
        ("check_range", CFUNCTYPE(c_int32, c_void_p, c_uint64, c_size_t, POINTER(Error))),
        ("lend", CFUNCTYPE(c_int32, c_void_p, c_uint64, c_size_t, POINTER(Error))),
        (
            "upload_kernel",
            CFUNCTYPE(c_int32, c_void_p, c_int32, c_void_p, c_size_t, POINTER(c_uint64)),
        ),
        ("resolve", CFUNCTYPE(c_int32, c_void_p, c_uint64, c_char_p, POINTER(c_void_p))),
        ("dispatch", CFUNCTYPE(None, c_void_p, c_uint32, POINTER(Dispatch), c_uint32)),
        ("poll", CFUNCTYPE(None, c_void_p, c_uint32, POINTER(PollResult))),
        ("fault", CFUNCTYPE(None, c_void_p, c_uint32, POINTER(Error))),
        ("wake", CFUNCTYPE(None, c_void_p, c_uint32)),
        ("wait", CFUNCTYPE(c_int32, c_void_p, POINTER(c_uint32), c_uint32)),
        ("notify", CFUNCTYPE(None, c_void_p, POINTER(c_uint32))),
        ("now", CFUNCTYPE(c_uint64, c_void_p)),
        ("yield_", CFUNCTYPE(None, c_void_p, c_uint32)),
        ("order", CFUNCTYPE(None, c_void_p, c_uint32, c_uint64, c_uint64)),
        ("log", CFUNCTYPE(None, c_void_p, c_int32, c_char_p)),
    )


class KernelEntry(Structure):
    """``pto_kernel_entry``."""

    _fields_ = (
        ("func_id", c_int32),
        ("core_type", c_int32),
        ("address", c_uint64),
        ("name", c_char_p),
        ("signature", c_void_p),
    )


class Run(Structure):
    """``pto_run``."""

    _fields_ = (
        ("kernels", POINTER(KernelEntry)),
        ("num_kernels", c_uint32),
        ("num_args", c_uint32),
        ("args", POINTER(c_uint64)),
        ("ranges", POINTER(HostRange)),
        ("num_ranges", c_uint32),
        ("hazards", c_uint32),
        ("library", c_uint64),
        ("entry", c_char_p),
        ("config", POINTER(CallConfig)),
        ("attend", c_void_p),
        ("attend_context", c_void_p),
        ("trace", c_void_p),
        ("measurement", c_void_p),
    )


class Task(Structure):
    """``pto_task``."""

    _fields_ = (
        ("func_id", c_int32),
        ("core_type", c_int32),
        ("num_args", c_uint32),
        ("line", c_int32),
        ("args", POINTER(c_uint64)),
        ("kernel", c_uint64),
        ("cookie", c_uint64),
        ("file", c_char_p),
    )


class Buffer(Structure):
    """``pto_buffer``."""

    _fields_ = (("addr", c_uint64), ("size", c_uint64))


class TensorData(Structure):
    """``pto_tensor_data``."""

    _fields_ = (
        ("buffer", Buffer),
        ("raw_shapes", c_uint64 * MAX_DIMS),
        ("shapes", c_uint64 * MAX_DIMS),
        ("offsets", c_uint64 * MAX_DIMS),
        ("start_offset", c_uint64),
        ("ndims", c_uint32),
        ("dtype", c_uint32),
        ("version", c_int32),
        ("order", c_uint8 * MAX_DIMS),
        ("is_pipe", c_uint8),
        ("dropped", c_uint8),
        ("tag", c_uint8),
        ("reserved", c_uint8 * 4),
        ("owner", c_int64),
    )


class ParamValue(Union):
    """The value of a ``pto_param``: a tensor or a scalar, depending on its tag."""

    _fields_ = (("tensor", POINTER(TensorData)), ("scalar", c_uint64))


class Param(Structure):
    """``pto_param``."""

    _fields_ = (("tag", c_uint32), ("reserved", c_uint32), ("value", ParamValue))


class TensorTask(Structure):
    """``pto_tensor_task``."""

    _fields_ = (
        ("func_id", c_int32),
        ("core_type", c_int32),
        ("num_params", c_uint32),
        ("block_dim", c_uint32),
        ("params", POINTER(Param)),
        ("kernel", c_uint64),
        ("cookie", c_uint64),
        ("clusters", POINTER(c_int32)),
        ("file", c_char_p),
        ("line", c_int32),
        ("reserved", c_uint32),
    )


class Statistic(Structure):
    """``pto_statistic``."""

    _fields_ = (
        ("name", c_char * 48),
        ("value", c_uint64),
        ("is_peak", c_uint32),
        ("reserved", c_uint32),
    )


class RuntimeApi(Structure):
    """``pto_runtime_api``."""

    _fields_ = (
        ("abi_version", c_uint32),
        ("struct_size", c_uint32),
        ("variant", c_char_p),
        ("capabilities", c_uint32),
        ("max_args", c_uint32),
        ("max_tasks", c_int64),
        (
            "create",
            CFUNCTYPE(
                c_int32,
                POINTER(Platform),
                POINTER(Option),
                c_uint32,
                POINTER(c_void_p),
                POINTER(Error),
            ),
        ),
        ("destroy", CFUNCTYPE(None, c_void_p)),
        ("begin", CFUNCTYPE(c_int32, c_void_p, POINTER(Run))),
        ("orchestrate", CFUNCTYPE(c_int32, c_void_p)),
        ("orchestration_done", CFUNCTYPE(None, c_void_p, c_int32)),
        ("submit", CFUNCTYPE(c_int64, c_void_p, POINTER(Task))),
        ("submit_tensors", CFUNCTYPE(c_int64, c_void_p, POINTER(TensorTask))),
        ("add_edge", CFUNCTYPE(c_int32, c_void_p, c_int64, c_int64)),
        ("publish", CFUNCTYPE(c_int32, c_void_p, c_int64)),
        ("scope_begin", CFUNCTYPE(c_int32, c_void_p, c_char_p, c_int32)),
        ("scope_end", CFUNCTYPE(c_int32, c_void_p)),
        ("allocate_cluster", CFUNCTYPE(c_int32, c_void_p, c_char_p, c_int32)),
        ("free_cluster", CFUNCTYPE(c_int32, c_void_p, c_int32)),
        ("schedule_step", CFUNCTYPE(c_int32, c_void_p, c_uint32)),
        ("stalled", CFUNCTYPE(c_int32, c_void_p)),
        ("attend", CFUNCTYPE(None, c_void_p)),
        ("finalise", CFUNCTYPE(c_int32, c_void_p)),
        ("end", CFUNCTYPE(None, c_void_p)),
        ("abort", CFUNCTYPE(None, c_void_p, POINTER(Error))),
        ("last_error", CFUNCTYPE(c_int32, c_void_p, POINTER(Error))),
        ("statistics", CFUNCTYPE(c_uint32, c_void_p, POINTER(Statistic), c_uint32)),
        ("explain", CFUNCTYPE(c_size_t, c_void_p, c_void_p, c_size_t)),
        ("access_log", CFUNCTYPE(None, c_void_p, c_void_p)),
        ("export_graph", CFUNCTYPE(c_size_t, c_void_p, c_void_p, c_size_t)),
        ("import_graph", CFUNCTYPE(c_int32, c_void_p, c_void_p, c_size_t)),
    )


KernelCallback = CFUNCTYPE(c_int32, c_void_p, POINTER(Payload), c_uint32, POINTER(Error))


class KernelSource(Structure):
    """``pto_kernel_source``."""

    _fields_ = (
        ("func_id", c_int32),
        ("core_type", c_int32),
        ("name", c_char_p),
        ("path", c_char_p),
        ("symbol", c_char_p),
        ("callback", KernelCallback),
        ("context", c_void_p),
    )


class CoreUsage(Structure):
    """``pto_core_usage``."""

    _fields_ = (("tasks", c_uint64), ("busy_ns", c_uint64))


class RunReport(Structure):
    """``pto_run_report``."""

    _fields_ = (
        ("tasks", c_uint64),
        ("build_ns", c_uint64),
        ("run_ns", c_uint64),
        ("copy_ns", c_uint64),
        ("bytes_in", c_uint64),
        ("bytes_out", c_uint64),
        ("copies_in", c_uint64),
        ("copies_out", c_uint64),
        ("trace_hash", c_uint64),
        ("peak_bytes", c_uint64),
        ("cores", CoreUsage * MAX_CORES),
        *(("blocks", c_uint32), ("reserved", c_uint32)),
    )


class LeakReport(Structure):
    """``pto_leak_report``."""

    _fields_ = (
        ("buffers", c_uint64),
        ("bytes", c_uint64),
        ("first_address", c_uint64),
        ("first_bytes", c_uint64),
    )


class ActivitySlot(Structure):
    """``pto_activity_slot``."""

    _fields_ = (
        ("sequence", c_uint64),
        ("task", c_uint64),
        ("func_id", c_int32),
        ("core", c_int32),
        ("kernel", c_uint64),
        ("signal", c_uint64),
        ("orchestrates", c_uint64),
        ("pad", c_uint64 * 2),
    )


class ActivityPage(Structure):
    """``pto_activity_page``."""

    _fields_ = (
        ("magic", c_uint32),
        ("version", c_uint32),
        ("slots", c_uint32),
        ("device", c_int32),
        ("capabilities", c_uint32),
        ("reserved", c_uint32),
        ("pad", c_uint64 * 13),
        ("slot", ActivitySlot * ACTIVITY_SLOTS),
    )


class DeviceShape(Structure):
    """``pto_device_shape``."""

    _fields_ = (
        *(("blocks", c_uint32), ("is_deterministic", c_uint32), ("has_planning", c_uint32)),
        *(("machine", c_uint32), ("process", c_uint32), ("reserved", c_uint32)),
        ("label", c_char_p),
    )


class Artefact(Structure):
    """``pto_artefact``."""

    _fields_ = (("kind", c_char_p), ("path", c_char_p))


class Attachment(Structure):
    """``pto_attachment``."""

    _fields_ = (
        ("api", POINTER(RuntimeApi)),
        ("variant", c_char_p),
        ("artefacts", POINTER(Artefact)),
        ("num_artefacts", c_uint32),
        ("reserved", c_uint32),
    )


class BackendApi(Structure):
    """``pto_backend_api``."""

    _fields_ = (
        ("abi_version", c_uint32),
        ("struct_size", c_uint32),
        ("name", c_char_p),
        ("capabilities", c_uint32),
        ("reserved", c_uint32),
        (
            "open",
            CFUNCTYPE(
                c_int32,
                c_int32,
                POINTER(Option),
                c_uint32,
                POINTER(c_void_p),
                POINTER(DeviceShape),
                POINTER(Error),
            ),
        ),
        ("close", CFUNCTYPE(None, c_void_p, POINTER(LeakReport))),
        ("allocate", CFUNCTYPE(c_int32, c_void_p, c_size_t, POINTER(c_uint64), POINTER(Error))),
        ("free", CFUNCTYPE(c_int32, c_void_p, c_uint64, POINTER(Error))),
        ("copy_in", CFUNCTYPE(c_int32, c_void_p, c_uint64, c_void_p, c_size_t, POINTER(Error))),
        ("copy_out", CFUNCTYPE(c_int32, c_void_p, c_void_p, c_uint64, c_size_t, POINTER(Error))),
        (
            "load_kernel",
            CFUNCTYPE(c_int32, c_void_p, POINTER(KernelSource), POINTER(c_uint64), POINTER(Error)),
        ),
        ("unload_kernel", CFUNCTYPE(c_int32, c_void_p, c_uint64)),
        (
            "load_library",
            CFUNCTYPE(c_int32, c_void_p, c_char_p, POINTER(c_uint64), POINTER(Error)),
        ),
        ("unload_library", CFUNCTYPE(c_int32, c_void_p, c_uint64)),
        (
            "attach",
            CFUNCTYPE(
                c_int32,
                c_void_p,
                POINTER(Attachment),
                POINTER(Option),
                c_uint32,
                POINTER(POINTER(RuntimeApi)),
                POINTER(c_void_p),
                POINTER(Error),
            ),
        ),
        ("detach", CFUNCTYPE(None, c_void_p)),
        ("start", CFUNCTYPE(c_int32, c_void_p, POINTER(Run), POINTER(Error))),
        ("orchestration_done", CFUNCTYPE(None, c_void_p, c_int32)),
        ("wait", CFUNCTYPE(c_int32, c_void_p, c_int64)),
        ("finish", CFUNCTYPE(c_int32, c_void_p, POINTER(RunReport), POINTER(Error))),
        ("abort", CFUNCTYPE(None, c_void_p, POINTER(Error), c_int32)),
        ("activity", CFUNCTYPE(POINTER(ActivityPage), c_void_p)),
        ("wait_stream", CFUNCTYPE(c_int32, c_void_p, c_uint64, c_int64, POINTER(Error))),
    )


# ---- pto/abi/endpoint.h ----

CLOSED = -1
PROTOCOL = -2
PAGE = 4096


class TransportFlag(IntFlag):
    """``PTO_TRANSPORT_*``."""

    SAME_ADDRESSES = 1
    IN_ORDER = 2


class FrameHead(Structure):
    """``pto_frame``."""

    _fields_ = (
        ("callable", c_uint8 * 32),
        ("required_count", c_uint64),
        ("required_child", c_int32),
        ("config", c_uint32),
        ("number", c_uint64),
        ("bytes", c_uint32),
        ("kind", c_uint16),
        ("flags", c_uint16),
    )


class FrameView(Structure):
    """``pto_frame_view``."""

    _fields_ = (("frame", POINTER(FrameHead)), ("data", c_void_p))


class Answer(Structure):
    """``pto_answer``."""

    _fields_ = (
        ("number", c_uint64),
        ("data", c_void_p),
        ("bytes", c_uint32),
        ("kind", c_uint16),
        ("outcome", c_uint16),
    )


class Bell(Structure):
    """``pto_bell``."""

    _fields_ = (
        ("rung", c_uint32),
        ("sleepers", c_uint32),
        ("descriptor", c_uint32),
        ("reserved", c_uint32 * 13),
    )


class Connection(Structure):
    """``pto_connection``."""

    _fields_ = (
        ("memory", c_void_p),
        ("memory_bytes", c_uint64),
        ("parent_bell", POINTER(Bell)),
        ("child_bell", POINTER(Bell)),
        ("queue_frames", c_uint32),
        ("queue_bytes", c_uint32),
    )


class TransportApi(Structure):
    """``pto_transport_api``."""

    _fields_ = (
        ("abi_version", c_uint32),
        ("capabilities", c_uint32),
        ("name", c_char_p),
        ("memory_needed", CFUNCTYPE(c_uint64, POINTER(Connection))),
        ("open_parent", CFUNCTYPE(c_void_p, POINTER(Connection))),
        ("submit", CFUNCTYPE(c_int32, c_void_p, POINTER(FrameView), c_int32)),
        ("poll", CFUNCTYPE(c_int32, c_void_p, POINTER(Answer), c_int32)),
        ("parent_error", CFUNCTYPE(c_char_p, c_void_p)),
        ("close_parent", CFUNCTYPE(None, c_void_p)),
        ("open_child", CFUNCTYPE(c_void_p, POINTER(Connection))),
        ("receive", CFUNCTYPE(c_int32, c_void_p, POINTER(FrameView), c_int32)),
        ("take", CFUNCTYPE(None, c_void_p, c_int32)),
        ("answer", CFUNCTYPE(c_int32, c_void_p, POINTER(Answer))),
        ("child_error", CFUNCTYPE(c_char_p, c_void_p)),
        ("close_child", CFUNCTYPE(None, c_void_p)),
    )


def head_of(packed: bytes) -> FrameHead:
    """Return the head of a packed frame."""
    return FrameHead.from_buffer_copy(packed)


def bytes_at(address: int | None, size: int) -> bytes:
    """Copy the bytes at ``address``."""
    return ctypes.string_at(address, size) if address and size else b""
