"""The windows of domains: memory of a chip that other chips map, too.

A domain gives each of its chips a window: a range of the chip's memory that the other chips of the
domain map, too. A window consists of pages of the shared memory of the Worker::

    shared memory     | window of chip 0 | window of chip 1 |    the same addresses in all processes
                         |                        |
    memory of chip 0  |  window  |     memory of chip 1  |  window  |

In each chip's process a task replaces the pages of a buffer of the chip by those of the shared
memory. So the window is an ordinary buffer for the chip, with edges and checks, and the others
reach it at its shared address. The simulator can do this, because the memory of a simulated chip is
memory of its process. Windows stay with the chip: a later domain uses them again.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import struct
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pto_compat_simpler.task_interface import Buffer, CommBufferSpec, DataType, Tensor
from pto_core.chip import ChipCallable
from pto_core.errors import UnsupportedError, UsageError
from pto_core.published import (
    ContinuousTensor,
    TaskArgs as CoreTaskArgs,
    TensorArgType,
    Worker as CoreWorker,
)

_PAGE = mmap.PAGESIZE
_REMAP_FIXED = 3  # MREMAP_MAYMOVE | MREMAP_FIXED
# struct CommContext in platform_comm/comm_context.h
_CONTEXT = struct.Struct("=QQIIQ64Q64Q")
_MOST_RANKS = 64
_ALIGNMENT = 1024


@dataclass(eq=False)
class DomainMember:
    """The window of one chip of a domain. The addresses are valid in that chip.

    ``device_ctx``: the address of its ``CommContext``. ``buffers`` and ``buffer_ptrs`` have a
    tensor and an address for each name.
    """

    domain_rank: int
    domain_size: int
    local_window_base: int
    actual_window_size: int
    device_ctx: int
    buffers: dict[str, Tensor] = field(default_factory=dict)

    @property
    def buffer_ptrs(self) -> dict[str, int]:
        """The addresses of the buffers by name."""
        return {name: one.buffer.base + one.byte_offset for name, one in self.buffers.items()}


class Domain(dict[int, DomainMember]):
    """Windows that several chips share; ``domain[worker]`` is that of one chip."""

    def __missing__(self, worker: int) -> DomainMember:
        raise UsageError(
            f"worker {worker} is not in this domain, which has {', '.join(map(str, self))}",
            name="worker",
            value=worker,
        )

    def __enter__(self) -> Domain:
        return self

    def __exit__(self, *raised: object) -> None:
        """Do nothing: tasks of the run may use the windows until the run is over."""


# The shared memory of a window, and its address in the memory of the chip.
_Window = tuple[Any, int]


class Windows:
    """The windows of the chips of a Worker."""

    def __init__(self, core: CoreWorker, platform: str, chips: int) -> None:
        self._core = core
        self._platform = platform
        self.chips = chips
        self._free: dict[tuple[int, int], list[_Window]] = {}  # by chip and size
        self._used: list[tuple[tuple[int, int], _Window, int]] = []  # with `_deaths` at their use
        self._names: dict[str, Any] = {}  # the contexts of the domains of the open run
        self._deaths = 0  # of children, when the last domain was made
        self._map = core.register(ChipCallable(map_window)) if chips else None

    def domain(
        self,
        name: str,
        workers: tuple[int, ...],
        window_size: int,
        buffers: tuple[CommBufferSpec, ...],
        orch: Any,
    ) -> Domain:
        """Return a domain, whose windows belong to the run of ``orch`` until its end."""
        offsets, end = {}, 0
        for spec in buffers:
            offsets[spec.name] = end
            end += -(-spec.size // _ALIGNMENT) * _ALIGNMENT
        self._check(name, workers, len(offsets) == len(buffers) and name not in self._names)
        if window_size <= 0 or end > window_size:
            raise UsageError(
                f"domain {name!r}: the buffers have {end} bytes, each rounded up to "
                f"{_ALIGNMENT}, and the window has {window_size}; pass a larger window_size",
                name="window_size",
                value=window_size,
            )
        deaths = self._core.statistics()["deaths"]
        if deaths != self._deaths:  # a new process of a chip does not have the old windows
            self._free.clear()
            self._deaths = deaths
        windows = [self._window(worker, window_size, orch) for worker in workers]
        contexts = self._core.shared_array((len(workers), _CONTEXT.size), np.uint8)
        self._names[name] = contexts
        found = Domain()
        for rank, (worker, (_, local)) in enumerate(zip(workers, windows, strict=True)):
            addresses = [memory.ctypes.data for memory, _ in windows]
            addresses[rank] = local
            addresses += [0] * (_MOST_RANKS - len(windows))
            packed = _CONTEXT.pack(0, 0, rank, len(windows), window_size, *addresses, *addresses)
            contexts[rank] = np.frombuffer(packed, np.uint8)
            context = contexts.ctypes.data + rank * _CONTEXT.size
            whole = Buffer(local, window_size, worker=worker)
            found[worker] = DomainMember(rank, len(windows), local, window_size, context)
            for spec in buffers:
                count = spec.count or spec.size // DataType.of(spec.dtype).numpy.itemsize
                found[worker].buffers[spec.name] = whole.tensor(
                    (count,), spec.dtype, byte_offset=offsets[spec.name]
                )
        return found

    def _check(self, name: str, workers: tuple[int, ...], is_new: bool) -> None:
        if self._platform != "a2a3sim":
            raise UnsupportedError(
                f"domains are available on a2a3sim only, and the platform is {self._platform}",
                name="platform",
                value=self._platform,
            )
        known = range(min(self.chips, _MOST_RANKS))
        if not workers or len(set(workers)) < len(workers) or not set(workers) <= set(known):
            raise UsageError(
                f"domain {name!r}: workers are {list(workers)}; pass different chips of 0 to "
                f"{len(known) - 1}",
                name="workers",
                value=workers,
            )
        if not is_new:
            raise UsageError(
                f"domain {name!r}, or one of its buffers, has a name that is used already",
                name="name",
                value=name,
            )

    def _window(self, worker: int, window_size: int, orch: Any) -> _Window:
        """Return a window of zeros; it belongs to the run until its end."""
        size = -(-window_size // _PAGE) * _PAGE
        free = self._free.get((worker, size))
        window = free.pop() if free else self._new(worker, size, orch)
        window[0][:] = 0
        self._used.append(((worker, size), window, self._deaths))
        return window

    def _new(self, worker: int, size: int, orch: Any) -> _Window:
        whole = self._core.shared_array(size + _PAGE, np.uint8)
        start = -whole.ctypes.data % _PAGE
        memory = whole[start : start + size]
        local = -(-self._core.malloc(size + _PAGE, worker) // _PAGE) * _PAGE
        args = CoreTaskArgs()
        window = ContinuousTensor.from_pointer(local, (size,), "uint8", child_memory=True)
        args.add_tensor(window, TensorArgType.INOUT)
        args.add_scalar(memory.ctypes.data)
        orch.submit_next_level(self._map, args, worker=worker).result()
        return memory, local

    def end_run(self) -> None:
        """Release the windows of the run that is over, without those from before a death."""
        for key, window, deaths in self._used:
            if deaths == self._deaths:
                self._free.setdefault(key, []).append(window)
        self._used.clear()
        self._names.clear()

    def close(self) -> None:
        """Drop all windows, because the Worker is closed."""
        self._used.clear()
        self._free.clear()


def map_window(_rt: Any, window: Any, shared: int) -> None:
    """Replace the pages of a buffer of this chip by pages of shared memory. Runs in the chip."""
    remap = ctypes.CDLL(None, use_errno=True).mremap
    remap.restype = ctypes.c_size_t
    remap.argtypes = (*(ctypes.c_size_t,) * 3, ctypes.c_int, ctypes.c_size_t)
    # An old size of 0 leaves the mapping of shared memory where it is, and maps it once more.
    if remap(shared, 0, window.nbytes, _REMAP_FIXED, window.address) != window.address:
        raise OSError(ctypes.get_errno(), f"mremap: {os.strerror(ctypes.get_errno())}")
