"""Call the function tables of a backend and of a runtime.

Each entry of a table has one method. An error raises a :class:`StatusError`. The methods check
nothing, so that a test can break the rules on purpose and observe the plugin.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pto_devkit import abi
from pto_devkit.checks import ContractError

RUN_LIMIT_S = 60.0
"""The time in seconds after which a run counts as hung."""

_WAIT_SLICE_NS = 50_000_000

_held_by_stuck_threads: list[object] = []
"""Callbacks that a thread of a lost device may still call, so they are never freed."""


class StatusError(Exception):
    """A call of the native ABI failed with ``status``; ``error`` is its error record."""

    def __init__(self, call: str, status: int, error: abi.Error) -> None:
        self.status = abi.Status(status)
        self.error = error
        self.message = bytes(error.message).decode(errors="replace")
        super().__init__(f"{call}: {self.status.name}: {self.message}")


@dataclass(frozen=True)
class Kernel:
    """A loaded kernel, as an entry of the kernel table of a run."""

    func_id: int
    core: abi.Core
    address: int


@dataclass(frozen=True)
class RunOutcome:
    """The result of a run: its status, its first error and its report."""

    status: abi.Status
    error: abi.Error
    report: abi.RunReport

    @property
    def message(self) -> str:
        """The message of the first error."""
        return bytes(self.error.message).decode(errors="replace")


def _options(options: Mapping[str, object]) -> Any:
    return (abi.Option * len(options))(
        *(abi.Option(key.encode(), str(value).encode()) for key, value in options.items())
    )


class NativeBackend:
    """A backend library."""

    def __init__(self, library: Path) -> None:
        self._library = ctypes.CDLL(str(library))
        entry = self._library.pto_backend_entry
        entry.restype = ctypes.POINTER(abi.BackendApi)
        self.table: abi.BackendApi = entry().contents
        self.flags = abi.BackendFlag(self.table.capabilities)

    def open(self, device_id: int = 0, **options: object) -> NativeDevice:
        """Open a device; ``options``: for the library, such as ``mode`` and ``seed``."""
        return NativeDevice(self, device_id, options)


class NativeRuntime:
    """One variant of a runtime library."""

    def __init__(
        self, library: Path, variant: str, artefacts: Sequence[tuple[str, str]] = ()
    ) -> None:
        self.artefacts = artefacts
        self._library = ctypes.CDLL(str(library))
        self.pointer = self.entry(variant)
        if not self.pointer:
            raise ContractError(f"{library.name}: pto_runtime_entry({variant!r}) returned NULL")
        self.table: abi.RuntimeApi = self.pointer.contents
        self.flags = abi.RuntimeFlag(self.table.capabilities)

    def entry(self, variant: str) -> Any:
        """Request ``variant`` from the library. Return its function table, or a null pointer."""
        entry = self._library.pto_runtime_entry
        entry.argtypes = [ctypes.c_char_p]
        entry.restype = ctypes.POINTER(abi.RuntimeApi)
        return entry(variant.encode())


class NativeDevice:
    """An open device. The end of a ``with`` block closes it. No call may follow :meth:`close`."""

    def __init__(
        self, backend: NativeBackend, device_id: int, options: Mapping[str, object]
    ) -> None:
        self.backend = backend
        self._table = backend.table
        self._handle = ctypes.c_void_p()
        self._keep: list[object] = []
        self._running = False
        self._lost = False
        self._runtime: NativeRuntime | Any = None
        self.runtime_handle = ctypes.c_void_p()
        self.runtime_table: abi.RuntimeApi | Any = None
        self.shape = abi.DeviceShape()
        error = abi.Error()
        native = _options(options)
        status = self._table.open(
            device_id,
            native,
            len(native),
            ctypes.byref(self._handle),
            ctypes.byref(self.shape),
            ctypes.byref(error),
        )
        if status != abi.Status.OK:
            raise StatusError("open", status, error)

    def __enter__(self) -> NativeDevice:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def close(self) -> abi.LeakReport:
        """End the run, detach and close. A second call does nothing. Return the leak report."""
        leaks = abi.LeakReport()
        if self._handle:
            if self._running:
                self.abort()
                self.orchestration_done()
                self.wait()
                self.finish()
            if self._lost:
                _held_by_stuck_threads.append((self._runtime, self._keep))
            else:
                self.detach()
            self._table.close(self._handle, ctypes.byref(leaks))
            self._handle = ctypes.c_void_p()
            self._keep = []
        return leaks

    def _call(self, name: str, *arguments: Any) -> None:
        error = abi.Error()
        status = getattr(self._table, name)(self._handle, *arguments, ctypes.byref(error))
        if status != abi.Status.OK:
            raise StatusError(name, status, error)

    def allocate(self, size: int) -> int:
        """Allocate ``size`` bytes of device memory."""
        address = ctypes.c_uint64()
        self._call("allocate", size, ctypes.byref(address))
        return address.value

    def free(self, address: int) -> None:
        """Free memory that :meth:`allocate` returned."""
        self._call("free", address)

    def copy_in(self, address: int, data: bytes | ctypes.Array[ctypes.c_char]) -> None:
        """Copy ``data`` to device memory."""
        self._call("copy_in", address, data, len(data))

    def copy_out(self, address: int, size: int) -> bytes:
        """Copy ``size`` bytes from device memory."""
        host = ctypes.create_string_buffer(size)
        self._call("copy_out", host, address, size)
        return host.raw

    def load_kernel(self, func_id: int, core: abi.Core, path: Path) -> Kernel:
        """Load a compiled kernel."""
        source = abi.KernelSource(func_id, core, b"kernel", str(path).encode(), None)
        return self._load(source)

    def load_callback(
        self, func_id: int, core: abi.Core, function: Callable[[Any, int, Any], int]
    ) -> Kernel:
        """Load a Python function ``function(payload, core, error) -> status`` as a kernel."""

        def callback(_context: int | None, payload: Any, core_index: int, error: Any) -> int:
            return function(payload, core_index, error)

        source = abi.KernelSource(
            func_id, core, function.__name__.encode(), None, None, abi.KernelCallback(callback)
        )
        return self._load(source)

    def _load(self, source: abi.KernelSource) -> Kernel:
        address = ctypes.c_uint64()
        self._call("load_kernel", ctypes.byref(source), ctypes.byref(address))
        self._keep.append(source)
        return Kernel(source.func_id, abi.Core(source.core_type), address.value)

    def unload_kernel(self, kernel: Kernel) -> None:
        """Unload a kernel. Its address must not be used again."""
        status = self._table.unload_kernel(self._handle, kernel.address)
        if status != abi.Status.OK:
            raise StatusError("unload_kernel", status, abi.Error())

    def load_library(self, path: Path) -> int:
        """Load a library and return its handle."""
        library = ctypes.c_uint64()
        self._call("load_library", str(path).encode(), ctypes.byref(library))
        return library.value

    def attach(self, runtime: Any, **options: object) -> None:
        """Attach a :class:`NativeRuntime` or an object with ``pointer`` and ``artefacts``."""
        native = _options(options)
        table = ctypes.POINTER(abi.RuntimeApi)()
        built = [abi.Artefact(kind.encode(), path.encode()) for kind, path in runtime.artefacts]
        attachment = abi.Attachment(
            runtime.pointer,
            runtime.pointer.contents.variant,
            (abi.Artefact * len(built))(*built),
            len(built),
        )
        self._call(
            "attach",
            ctypes.byref(attachment),
            native,
            len(native),
            ctypes.byref(table),
            ctypes.byref(self.runtime_handle),
        )
        self._runtime = runtime
        if not table:
            raise ContractError("attach() succeeded and returned no table")
        self.runtime_table = table.contents

    def detach(self) -> None:
        """Detach the runtime if one is attached."""
        if self._runtime is not None:
            self._table.detach(self._handle)
            self._runtime = None

    def start(
        self,
        kernels: Sequence[Kernel],
        arguments: Sequence[int] = (),
        *,
        block_dim: int = 0,
        aicpu_thread_num: int = 3,
    ) -> None:
        """Start a run with these arguments, to which the caller submits tasks."""
        entries = (abi.KernelEntry * max(len(kernels), 1))(
            *(abi.KernelEntry(k.func_id, k.core, k.address, b"kernel") for k in kernels)
        )
        config = abi.CallConfig(block_dim, aicpu_thread_num)
        words = (ctypes.c_uint64 * len(arguments))(*arguments)
        run = abi.Run(entries, len(kernels), len(words), words, config=ctypes.pointer(config))
        self._run_memory = (entries, words, config, run)
        self._call("start", ctypes.byref(run))
        self._running = True

    def orchestration_done(self, result: int = 0) -> None:
        """Announce that all tasks were submitted."""
        self._table.orchestration_done(self._handle, result)

    def wait(self, limit_s: float = RUN_LIMIT_S) -> None:
        """Wait for the end of the run. Raises ContractError if the run exceeds the time limit."""
        deadline = time.monotonic() + limit_s
        while (status := self._table.wait(self._handle, _WAIT_SLICE_NS)) != abi.Status.OK:
            if status != abi.Status.PENDING:
                raise ContractError(f"wait() returned {abi.Status(status).name}, not OK or PENDING")
            if time.monotonic() > deadline:
                self.abort(abi.Status.TIMEOUT, lost=True)
                raise ContractError(f"the run did not end within {limit_s} s")

    def finish(self) -> RunOutcome:
        """End the run."""
        error, report = abi.Error(), abi.RunReport()
        self._running = False
        status = self._table.finish(self._handle, ctypes.byref(report), ctypes.byref(error))
        return RunOutcome(abi.Status(status), error, report)

    def abort(self, cause: abi.Status = abi.Status.ABORTED, *, lost: bool = False) -> None:
        """Abort the run. Any thread may call this method."""
        self._lost = self._lost or lost
        error = abi.Error(status=cause, message=b"the conformance kit aborted the run")
        self._table.abort(self._handle, ctypes.byref(error), int(lost))

    def activity(self) -> abi.ActivityPage:
        """Return the activity page."""
        page = self._table.activity(self._handle)
        if not page:
            raise ContractError("activity() returned NULL, but 'threads' requires an activity page")
        named: abi.ActivityPage = page.contents
        return named


def entries(table: type[ctypes.Structure]) -> list[str]:
    """List the names of the functions in a table."""
    return [field[0] for field in table._fields_ if hasattr(field[1], "_flags_")]


def payload_arguments(payload: abi.Payload) -> list[int]:
    """Read the arguments that follow the header of a payload in memory."""
    start = ctypes.addressof(payload) + ctypes.sizeof(abi.Payload)
    return list((ctypes.c_uint64 * payload.num_args).from_address(start))


# ---- the log in device memory that the recorder kernel writes ----

RECORD = np.dtype([("runs", "<u8"), ("start", "<u8"), ("end", "<u8"), ("sum", "<u8")])
"""The record of one task: how often it ran, its start and end times, and the sum of its values."""

_CLOCK_BYTES = 64


def sum_of_values(values: Sequence[int]) -> int:
    """Return the sum that the recorder kernel computes for ``values``."""
    total = 0
    for value in values:
        total = (total * 31 + value) % 2**64
    return total


class RecorderLog:
    """A log in device memory with one record for each of ``tasks`` tasks."""

    def __init__(self, device: NativeDevice, tasks: int) -> None:
        self._device = device
        self._bytes = tasks * RECORD.itemsize
        self.tasks = tasks
        self.address = device.allocate(_CLOCK_BYTES + self._bytes)
        self.clear()

    def clear(self) -> None:
        """Reset all records to zero."""
        self._device.copy_in(self.address, bytes(_CLOCK_BYTES + self._bytes))

    def arguments(self, index: int, values: Sequence[int] = ()) -> list[int]:
        """Return the arguments of the kernel for task ``index``, with its values at the end."""
        return [self.address, index, 0, len(values), *values]

    def read(self) -> np.ndarray[Any, Any]:
        """Return the records, one per task."""
        raw = self._device.copy_out(self.address + _CLOCK_BYTES, self._bytes)
        return np.frombuffer(raw, dtype=RECORD)

    def free(self) -> None:
        """Free the memory of the log."""
        self._device.free(self.address)
