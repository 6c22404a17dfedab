"""The settings of the core."""

from __future__ import annotations

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

HAZARDS = ("raw", "full")
"""Indexed by the values of the C field ``pto_run.hazards``."""
ON_WORKER_DEATH = ("fail", "restart", "reroute")
START_METHODS = ("fork", "spawn")
LOG_LEVELS = ("error", "warn", "info", "debug")
LOG_FORMATS = ("text", "json")


def core_options(environ: Mapping[str, str]) -> tuple[Option, ...]:
    """List the core's settings; ``environ`` determines the default folder of the cache."""
    return (
        Option("backend", "a2a3sim", text, "platform that runs the kernels"),
        Option("runtime", "host_build_graph", text, "level-2 runtime variant"),
        Option("device", 0, integer(minimum=0), "number of the device"),
        Option("block_dim", 0, integer(minimum=0), "blocks of a run; 0 is the platform's maximum"),
        Option("aicpu_thread_num", 3, integer(1, 4), "AICPU threads of a run"),
        Option("task_timeout_s", None, optional(number(minimum=0)), "limit for one task, seconds"),
        Option(
            "hazards",
            None,
            optional(choice(*HAZARDS)),
            "conflicts that order tasks, where the runtime finds them; "
            "none: full from Python, raw from C++",
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
            "size of the compiled artefacts that are kept, the last used ones first; 0: no limit",
        ),
        Option("jobs", _available_cpus(), integer(minimum=1), "compilers that run at once"),
        Option("cxx", None, optional(text), "C++ compiler to prefer", "CXX", is_of_host=True),
        Option("log_level", "warn", choice(*LOG_LEVELS), "least severe message that is shown"),
        Option("log_format", "text", choice(*LOG_FORMATS), "how log messages are written"),
        Option(
            "pto_isa_root",
            None,
            optional(path),
            "folder of the kernel tile library",
            environment="PTO_ISA_ROOT",
            is_of_host=True,
        ),
    )


def _remote_options() -> tuple[Option, ...]:
    """List the settings of Workers on other hosts."""
    return (
        Option("link", "zmq", text, "how a Worker reaches other hosts"),
        Option(
            "remote_insecure",
            False,
            boolean,
            "whether hosts without keys may be used, beside this one",
        ),
        Option(
            "remote_buffer_bytes",
            2**40,
            size_bytes,
            "bytes of addresses that a Worker reserves for its buffers on other hosts",
        ),
        Option(
            "remote_buffer_limit",
            0,
            size_bytes,
            "bytes of buffers on a host that limits the memory of its clients",
        ),
        Option("remote_lease_s", 3.0, number(minimum=0.1), "how long a cut to a host may last"),
        Option(
            "remote_memory_limit",
            2**32,
            size_bytes,
            "bytes of shared memory that another host holds",
        ),
    )


def _worker_options() -> tuple[Option, ...]:
    """List the settings of Workers, level 3 and up."""
    return (
        Option("transport", "shm", text, "how a Worker reaches its children"),
        Option("engine", "native", text, "engine that runs the graphs of a Worker"),
        Option("policy", "least_loaded", text, "placement policy for tasks without a pin"),
        Option(
            "heap_ring_size",
            2**30,
            size_bytes,
            "bytes of each of a Worker's four heap rings; they take memory as they are used",
        ),
        Option(
            "shared_memory_limit",
            None,
            optional(size_bytes),
            "bytes of arrays that a Worker hands out; none: what memory leaves free at that moment",
        ),
        Option(
            "snapshot_limit",
            64 * 2**20,
            size_bytes,
            "bytes of INOUT regions that a Worker keeps for tasks with retries",
        ),
        Option("child_window", 64, integer(1, 256), "tasks that may be in flight to one child"),
        Option(
            "child_queue_bytes",
            2**18,
            size_bytes,
            "bytes of tasks that may be in flight to one child; also the largest task",
        ),
        Option(
            "child_start_timeout_s",
            60.0,
            number(minimum=0),
            "how long a child may take until it is ready, seconds",
        ),
        Option("on_worker_death", "fail", choice(*ON_WORKER_DEATH), "what follows a child's death"),
        Option("start_method", "fork", choice(*START_METHODS), "how children are started"),
    )


def _cache_dir(environ: Mapping[str, str]) -> Path:
    base = environ.get("XDG_CACHE_HOME")
    if base and Path(base).is_absolute():
        return Path(base) / "pto"
    return Path(environ.get("HOME") or Path.home()) / ".cache" / "pto"


def _available_cpus() -> int:
    return len(os.sched_getaffinity(0))
