"""The settings of the core."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path

from pto_core.interfaces.parse import (
    boolean,
    choice,
    integer,
    number,
    optional,
    path,
    size_bytes,
    text,
)
from pto_core.interfaces.plugin import Option

DEVICE_MAX = 2**31 - 1
HAZARDS = ("raw", "full")
"""The position of a name is its value in the C field ``pto_run.hazards``."""
CHECK = "check"
"""The value of ``hazards`` that checks each run for races."""
DUMP_LEVELS = ("failed", "outputs", "all")
"""The names of the levels 1 to 3 of ``CallConfig.enable_dump_tensor`` (``pto/abi/dump.h``)."""
ON_WORKER_DEATH = ("fail", "restart", "reroute")
START_METHODS = ("fork", "spawn")
LOG_LEVELS = ("error", "warn", "info", "debug")
LOG_FORMATS = ("text", "json")
HOSTS_MAX = 1024
"""The maximum number of hosts of one :class:`pto_core.Hosts`."""
LAUNCHER_SETTINGS = (
    *("launcher", "hosts", "host_resources", "host_list", "host_command", "ray_address"),
)
"""The settings of launchers, which are not sent to another host."""


def core_options(environ: Mapping[str, str]) -> tuple[Option, ...]:
    """List the core's settings; ``environ`` determines the default folder of the cache."""
    return (
        Option("backend", "a2a3sim", text, "platform that runs the kernels"),
        Option("runtime", "host_build_graph", text, "level-2 runtime variant"),
        Option("device", 0, integer(0, DEVICE_MAX), "number of the device"),
        Option("block_dim", 0, integer(0, 2**31 - 1), "blocks of a run; 0 means all blocks"),
        Option("aicpu_thread_num", 3, integer(1, 4), "AICPU threads of a run"),
        Option("task_timeout_s", None, optional(number(minimum=0)), "time limit of a task, in s"),
        Option(
            "hazards",
            None,
            optional(choice(*HAZARDS, CHECK)),
            "conflicts that order two tasks, if the runtime finds dependencies; default: full for "
            "a Python orchestration, raw for C++; check: the default, and tasks that race fail "
            "the run",
        ),
        Option(
            "measure",
            False,
            boolean,
            "build kernels that report their accesses to memory, for graphs and checks; slow",
        ),
        *_worker_options(),
        *_remote_options(),
        Option(
            "cache_dir",
            _cache_dir(environ),
            path,
            "folder of compiled artefacts",
            is_of_host=True,
        ),
        Option(
            "cache_limit_bytes",
            2 * 2**30,
            size_bytes,
            "maximum size of the compiled artefacts, of which the least recently used are removed; "
            "0: no limit",
        ),
        *_trace_options(),
        Option(
            "jobs", _available_cpus(), integer(minimum=1), "maximum number of compilers at once"
        ),
        Option("cxx", None, optional(text), "C++ compiler", "CXX", is_of_host=True),
        Option("log_level", "warn", choice(*LOG_LEVELS), "least severe message that is shown"),
        Option("log_format", "text", choice(*LOG_FORMATS), "format of log messages"),
        Option(
            "pto_isa_root",
            None,
            optional(path),
            "folder of the kernel tile library",
            environment="PTO_ISA_ROOT",
            is_of_host=True,
        ),
    )


def _trace_options() -> tuple[Option, ...]:
    """List the settings of traces and dumps."""
    return (
        Option(
            "dump_select",
            "",
            text,
            "tasks that enable_dump_tensor dumps: KERNEL, #TASK, :TENSOR, @RUN; default: all",
        ),
        Option(
            "dump_limit_bytes",
            2**30,
            size_bytes,
            "most bytes that one run dumps; further arrays are not kept, and are counted",
        ),
        Option(
            "trace_ring_records",
            2**16,
            integer(2, 2**24),
            "records in the ring of each thread of a traced run; rounded up to a power of two",
        ),
        Option(
            "trace_records",
            2**25,
            integer(minimum=1),
            "most records of a trace, of 32 bytes each; later ones are dropped and counted",
        ),
        Option(
            "trace_after_s",
            0.0,
            number(minimum=0),
            "start of the window of a trace, in s after the start of a run, or of a Worker's trace",
        ),
        Option(
            "trace_for_s",
            None,
            optional(number(minimum=0.001)),
            "length of the window of a trace, in s; default: to the end of the run",
        ),
        Option(
            "flight_recorder",
            None,
            optional(path),
            "prefix of the files with the last records of each thread or child of a failed run",
            is_of_host=True,
        ),
    )


def _piece_or_more(value: str) -> int:
    nbytes = size_bytes(value)
    if nbytes < 2**20:
        raise ValueError("a size in bytes, at least 1M")
    return nbytes


def resource_amounts(value: str) -> dict[str, float]:
    """Parse amounts of resources: ``NPU=2,CPU=4``. Raises ValueError."""
    amounts = {}
    for part in value.split(","):
        name, _, amount = (word.strip() for word in part.partition("="))
        try:
            number = float(amount)
        except ValueError:
            number = math.nan
        if not name or not 0 <= number < math.inf:
            raise ValueError("amounts of resources, such as NPU=2,CPU=4")
        amounts[name] = number
    return amounts


def _resources(value: str) -> str:
    resource_amounts(value)
    return value


def _remote_options() -> tuple[Option, ...]:
    """List the settings of Workers on other hosts."""
    return (
        Option("remote_transport", "zmq", text, "how a Worker reaches other hosts"),
        Option("launcher", "local", text, "what places the hosts of Hosts.on()"),
        Option("hosts", 1, integer(1, HOSTS_MAX), "number of the hosts of Hosts.on()"),
        Option(
            "host_resources",
            None,
            optional(_resources),
            "resources that each host of Hosts.on() must have, such as NPU=2,CPU=4",
        ),
        Option("host_list", None, optional(text), "hosts of the launcher 'command': host1,host2"),
        Option(
            "host_command",
            "ssh {host} {command}",
            text,
            "command line with which the launcher 'command' starts an agent on a host",
        ),
        Option(
            "ray_address",
            None,
            optional(text),
            "cluster of the launcher 'ray': HOST:PORT",
            "RAY_ADDRESS",
        ),
        Option(
            "remote_insecure",
            False,
            boolean,
            "whether other hosts may be used without keys",
        ),
        Option(
            "remote_buffer_bytes",
            2**40,
            size_bytes,
            "bytes of addresses that a Worker reserves for remote buffers",
        ),
        Option(
            "remote_buffer_limit",
            0,
            size_bytes,
            "declared bytes of remote buffers, for a host that limits each client's memory",
        ),
        Option(
            "spare_workers",
            None,
            optional(integer(0, 1024)),
            "places for Workers on other hosts that join a running Worker; default: 8 for a Worker "
            "with a child on another host, otherwise 0",
        ),
        Option("remote_lease_s", 3.0, number(minimum=0.1), "longest cut without loss, in s"),
        Option(
            "remote_memory_limit",
            2**32,
            _piece_or_more,
            "maximum number of bytes of shared memory that another host stores",
        ),
    )


def _worker_options() -> tuple[Option, ...]:
    """List the settings of Workers, level 3 and up."""
    return (
        Option("transport", "shm", text, "how a Worker reaches its children"),
        Option(
            "policy",
            None,
            optional(text),
            "placement policy for tasks without a pin; default: near_inputs for a Worker with "
            "places for children on other hosts, otherwise least_loaded",
        ),
        Option(
            "heap_ring_size",
            2**30,
            size_bytes,
            "bytes of each of a Worker's four heap rings; only used parts occupy memory",
        ),
        Option(
            "shared_memory_limit",
            None,
            optional(size_bytes),
            "maximum number of bytes of shared memory of a Worker; none: the free memory",
        ),
        Option(
            "snapshot_limit",
            64 * 2**20,
            size_bytes,
            "bytes of copies of INOUT regions that a Worker keeps for tasks with retries",
        ),
        Option("child_window", 64, integer(1, 256), "most tasks in flight to one child"),
        Option(
            "child_queue_bytes",
            2**18,
            size_bytes,
            "maximum number of bytes of tasks in flight to one child; also limits a single task",
        ),
        Option(
            "child_start_timeout_s",
            60.0,
            number(minimum=0),
            "time limit for the start of a child, in seconds",
        ),
        Option("on_worker_death", "fail", choice(*ON_WORKER_DEATH), "reaction to a child's death"),
        Option("start_method", "fork", choice(*START_METHODS), "how children are started"),
    )


def _cache_dir(environ: Mapping[str, str]) -> Path:
    base = environ.get("XDG_CACHE_HOME")
    if base and Path(base).is_absolute():
        return Path(base) / "pto"
    return Path(environ.get("HOME") or Path.home()) / ".cache" / "pto"


def _available_cpus() -> int:
    return len(os.sched_getaffinity(0))
