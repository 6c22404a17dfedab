"""Check the operating system: shared memory, system calls for waiting, cores, the cache folder."""

from __future__ import annotations

import ctypes
import os
import platform
import resource
import shutil
from collections.abc import Iterator
from pathlib import Path

from pto_core.cli.diagnosis.finding import Finding
from pto_core.config import Config
from pto_core.toolchain.cache import ArtefactCache
from pto_core.trust import reason_for_distrust

_MIB = 2**20
_CACHE_NEEDS_BYTES = 256 * _MIB
_SHARED_MEMORY_NEEDS_BYTES = 64 * _MIB
_FUTEX_NUMBER = {"x86_64": 202, "aarch64": 98}
_FUTEX_WAKE = 1


def examine(config: Config) -> Iterator[Finding]:
    """Check the limits of the system and the cache folder; create no files."""
    cores = len(os.sched_getaffinity(0))
    yield Finding("cores", True, True, f"{cores} of {os.cpu_count()} may be used")
    yield _futex()
    yield _anonymous_memory()
    yield _shared_memory(Path("/dev/shm"))
    yield _locked_memory()
    yield _cache(config["cache_dir"], config.origin("cache_dir"), config["cache_limit_bytes"])


def _futex() -> Finding:
    name, fix = "futex", "allow the futex system call in the sandbox or seccomp profile"
    number = _FUTEX_NUMBER.get(platform.machine())
    if number is None:
        detail = f"not known on {platform.machine()}; the simulator is built for x86-64 and AArch64"
        return Finding(name, False, True, detail, "use an x86-64 or AArch64 machine")
    word = ctypes.c_uint32(0)
    library = ctypes.CDLL(None, use_errno=True)
    woken = library.syscall(number, ctypes.byref(word), _FUTEX_WAKE, 1, None, None, 0)
    if woken != 0:
        return Finding(name, False, True, f"refused: {os.strerror(ctypes.get_errno())}", fix)
    return Finding(name, True, True, "works", fix)


def _anonymous_memory() -> Finding:
    name, fix = "memfd", "allow the memfd_create system call in the sandbox or seccomp profile"
    try:
        os.close(os.memfd_create("pto-doctor"))
    except OSError as error:
        return Finding(name, False, True, f"refused: {error.strerror}", fix)
    return Finding(name, True, True, "works", fix)


def _shared_memory(folder: Path) -> Finding:
    fix = f"mount -o remount,size=1G {folder}, or for a container --shm-size=1g"
    if not os.access(folder, os.W_OK):
        detail = f"{folder} does not exist or is not writable"
        return Finding("shared memory", False, False, detail, fix)
    free, total = _free_and_total_bytes(folder)
    detail = f"{free // _MIB} MiB free of {total // _MIB} MiB in {folder}"
    return Finding("shared memory", free >= _SHARED_MEMORY_NEEDS_BYTES, False, detail, fix)


def _locked_memory() -> Finding:
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    unlimited = soft == resource.RLIM_INFINITY
    detail = "no limit" if unlimited else f"at most {soft // 1024} KiB"
    return Finding("locked memory", True, False, detail)


def _cache(folder: Path, origin: str, limit_bytes: int) -> Finding:
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    fix = "set cache_dir (PTO_CACHE_DIR) to a writable folder with 256 MiB of free space"
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        detail = f"{folder} ({origin}) cannot be written"
        return Finding("cache folder", False, True, detail, fix)
    if (reason := reason_for_distrust(folder)) is not None:
        return Finding("cache folder", False, True, f"not used: {reason}", fix)
    free, _ = _free_and_total_bytes(existing)
    count, used = ArtefactCache(folder).size()
    limit = f"at most {limit_bytes // _MIB} MiB (cache_limit_bytes)" if limit_bytes else "no limit"
    held = f"{count} artefacts of {used // _MIB} MiB, {limit}"
    detail = f"{folder} ({origin}), {held}; {free // _MIB} MiB free"
    return Finding("cache folder", free >= _CACHE_NEEDS_BYTES, True, detail, fix)


def _free_and_total_bytes(folder: Path) -> tuple[int, int]:
    usage = shutil.disk_usage(folder)
    return usage.free, usage.total
