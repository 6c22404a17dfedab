"""Run the kernel of a dump alone: the program that ``pto replay`` starts.

Its memory is mapped at the addresses of the run, so that the arguments are valid without changes.
Arguments: the dump, the library, the number of calls, and the file for the arrays after the call.
If an assertion of the kernel fails, its text is written to ``assertion`` beside that file.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pto_insight.dumps.task_dump import DumpedArgument, TaskDump

ADDRESS_IN_USE = 75
"""The exit code if an address of the run is in use here. Another process has other addresses."""

ASSERTION = "assertion"

_PAYLOAD_HEADER = 40
_FIXED_NOREPLACE, _NORESERVE = 0x100000, 0x4000
_libc = ctypes.CDLL(None, use_errno=True)


def main() -> None:
    """Call the kernel, and write the arrays that it leaves and the times of the calls in ns."""
    file, library, times, out = sys.argv[1:]
    dump = TaskDump.read(Path(file))
    for begin, end in _pages(dump):
        _map(begin, end)
    hooks = _Subblock(lambda: dump.lane or 0), _State(lambda key, size: None)
    assertion = Path(out).with_name(ASSERTION)
    listener = _Listener(lambda *text: _take_text(assertion, *text))
    entry = _entry(library, hooks, listener)
    arrays = {one.argument: _view(dump, one) for one in dump.arguments}
    _forbid_other_memory(dump)
    taken = []
    for _ in range(int(times)):
        ctypes.memmove(dump.payload_address, dump.payload.tobytes(), len(dump.payload))
        for position, array in arrays.items():
            array[...] = dump.before[position]
        started = time.perf_counter_ns()
        entry(ctypes.c_void_p(dump.payload_address + _PAYLOAD_HEADER))
        taken.append(time.perf_counter_ns() - started)
    members: dict[str, Any] = {f"after{at}": array for at, array in arrays.items()}
    np.savez(out, times=taken, **members)


def _areas(dump: TaskDump) -> Iterator[tuple[int, int]]:
    """Yield the ranges of addresses that the call may use."""
    yield dump.payload_address, dump.payload_address + len(dump.payload)
    for one in dump.arguments:
        yield one.buffer, one.buffer + one.buffer_bytes
        yield one.address, one.address + _span(dump, one)


def _span(dump: TaskDump, one: DumpedArgument) -> int:
    steps = zip(one.shape, one.strides, strict=True)
    return sum((size - 1) * step for size, step in steps) + dump.before[one.argument].itemsize


def _pages(dump: TaskDump) -> list[tuple[int, int]]:
    """Return the pages of these ranges, joined where they touch."""
    size = mmap.PAGESIZE
    joined: list[tuple[int, int]] = []
    for begin, end in sorted(_areas(dump)):
        low, high = begin // size * size, -(-end // size) * size
        if joined and low <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(high, joined[-1][1])
        else:
            joined.append((low, high))
    return joined


def _map(begin: int, end: int) -> None:
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _FIXED_NOREPLACE | _NORESERVE
    _libc.mmap.restype = ctypes.c_void_p
    found = _libc.mmap(
        ctypes.c_void_p(begin),
        ctypes.c_size_t(end - begin),
        mmap.PROT_READ | mmap.PROT_WRITE,
        flags,
        -1,
        ctypes.c_long(0),
    )
    if found != begin:
        sys.exit(ADDRESS_IN_USE)


def _view(dump: TaskDump, one: DumpedArgument) -> NDArray[Any]:
    memory: Any = (ctypes.c_char * _span(dump, one)).from_address(one.address)
    return np.ndarray(one.shape, dump.before[one.argument].dtype, memory, strides=one.strides)


_Subblock = ctypes.CFUNCTYPE(ctypes.c_uint32)
_State = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_uint64, ctypes.c_size_t)
_Listener = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_int32, ctypes.c_int32, ctypes.c_char_p)


def _take_text(assertion: Path, file: bytes, line: int, is_failure: int, text: bytes) -> None:
    """Print a text of the kernel; after a failure, the kernel aborts."""
    shown = f"{os.fsdecode(file)}:{line}: {text.decode(errors='replace')}"
    sys.stderr.write(f"{shown}\n")
    sys.stderr.flush()
    if is_failure:
        assertion.write_text(shown, errors="replace")


def _entry(library: str, hooks: tuple[Any, Any], listener: Any) -> Any:
    loaded = ctypes.CDLL(library)
    if hasattr(loaded, "pto_listen_to_texts"):
        loaded.pto_listen_to_texts(listener)
    if hasattr(loaded, "pto_sim_register_hooks"):
        loaded.pto_sim_register_hooks(*hooks)
    loaded.kernel_entry.restype = None
    return loaded.kernel_entry


def _forbid_other_memory(dump: TaskDump) -> None:
    """Make the address sanitizer report accesses between the buffers, if it is loaded."""
    if not hasattr(_libc, "__asan_poison_memory_region"):
        return
    for begin, end in _pages(dump):
        _libc.__asan_poison_memory_region(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin))
    for begin, end in _areas(dump):
        _libc.__asan_unpoison_memory_region(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin))


if __name__ == "__main__":
    main()
