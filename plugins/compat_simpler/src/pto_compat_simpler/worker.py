"""``simpler.worker.Worker``: one chip (level 2), or chips and Python functions (level 3)."""

from __future__ import annotations

import ctypes
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from pto_compat_simpler.orchestrator import Orchestrator, core_config
from pto_compat_simpler.task_interface import (
    Buffer,
    CallConfig,
    DataType,
    TaskArgs,
    Tensor,
    bytes_of,
    runtime_of,
    tensor_over,
)
from pto_compat_simpler.windows import Windows
from pto_core import open_device
from pto_core.chip import ChipCallable, Device
from pto_core.errors import UsageError, WorkerClosedError
from pto_core.errors.values import invalid_value, shown
from pto_core.published import CallableHandle as CoreHandle, Worker as CoreWorker

_PATIENCE_S = 1.0


class RunHandle:
    """A run that :meth:`Worker.submit` has begun."""

    def __init__(self, future: Future[None], worker: Worker) -> None:
        self._future = future
        self._worker = worker
        self.is_seen = False

    def done(self) -> bool:
        """Return whether the run is over."""
        return self._future.done()

    def wait(self, timeout: float | None = None) -> None:
        """Wait for the end of the run; raise its error, or TimeoutError.

        Ctrl-C during the wait ends all runs of the Worker and closes it.
        """
        with self._worker.closed_by_interrupt():
            error = self._future.exception(timeout)
        self.is_seen = True
        if error is not None:
            raise error

    def result(self, timeout: float | None = None) -> None:
        """Wait as :meth:`wait` does. A run has no value."""
        self.wait(timeout)


class Worker(ABC):
    """A chip (``level=2``, ``device_id``), or chips with SUB children (``level=3``).

    Runs take place in the order of :meth:`run` and :meth:`submit`. All other calls that use the
    memory of a chip wait for the runs before them. ``enable_sdma`` has no effect.
    """

    def __new__(cls, level: int = 2, **_: Any) -> Worker:
        """Return a Worker of a level."""
        if cls is not Worker:
            return super().__new__(cls)
        kinds: dict[int, type[Worker]] = {2: ChipWorker, 3: HostWorker}
        if level not in kinds:
            raise invalid_value("level", level, "use 2 or 3")
        return super().__new__(kinds[level])

    def __init__(self) -> None:
        self._queue: _Queue = SimpleQueue()
        # A daemon thread, because Ctrl-C must end a program whose run does not end.
        self._thread = threading.Thread(target=_take_runs, args=(self._queue,), daemon=True)
        self._handles: list[RunHandle] = []
        self._last: Future[None] | None = None
        self._is_closed = self._is_abandoned = False

    @abstractmethod
    def register(self, target: Any) -> Any:
        """Return a handle for a ChipCallable or, for SUB children, a function."""

    @abstractmethod
    def unregister(self, handle: Any) -> None:
        """Invalidate a handle."""

    @abstractmethod
    def init(self, prewarm_config: CallConfig | None = None) -> Worker:
        """Open the chips, and start the children, before the first run."""

    @abstractmethod
    def _prepared(self, target: Any, args: Any, config: CallConfig | None) -> Callable[[], None]:
        """Check the arguments of a run, and return the function that runs it."""

    @abstractmethod
    def _interrupt(self) -> None:
        """End the run of another thread."""

    @abstractmethod
    def _end(self) -> None:
        """Close the chips and end the children."""

    def run(
        self, target: Any, args: TaskArgs | None = None, config: CallConfig | None = None
    ) -> None:
        """Run the callable of a handle, or at level 3 a function ``f(orch, args, config)``.

        At level 3, the callable of a handle runs on chip 0.
        """
        self._settle()
        self._prepared(target, args, config)()

    def submit(
        self, target: Any, args: TaskArgs | None = None, config: CallConfig | None = None
    ) -> RunHandle:
        """Begin a run and return its handle. It starts when the earlier runs are over.

        The call checks and prepares the run while another one runs. If a run fails, and its handle
        was not waited for, :meth:`close` raises the error.
        """
        self._check_open()
        run = self._prepared(target, args, config)
        if self._last is None:
            self._thread.start()

        def begin() -> None:
            if self._is_abandoned:
                raise WorkerClosedError("an interrupt closed this Worker before the run began")
            run()

        self._last = Future()
        self._queue.put((self._last, begin))
        self._handles = [one for one in self._handles if not one.is_seen]
        self._handles.append(handle := RunHandle(self._last, self))
        return handle

    def _settle(self) -> None:
        """Wait for the submitted runs, unless this call is a part of one."""
        self._check_open()
        self._await_runs()

    def _await_runs(self) -> None:
        if self._last is not None and self._thread is not threading.current_thread():
            with self.closed_by_interrupt():
                wait([self._last])

    @contextmanager
    def closed_by_interrupt(self) -> Iterator[None]:
        """Return a block that waits for runs. An interrupt, such as Ctrl-C, closes the Worker."""
        try:
            yield
        except KeyboardInterrupt:
            self._abandon()
            raise

    def _abandon(self) -> None:
        """End the submitted runs and close the Worker. Kernels that do not return are left."""
        self._is_closed = self._is_abandoned = True
        while self._last is not None and not self._last.done():
            self._interrupt()
            wait([self._last], _PATIENCE_S)
        self._handles.clear()
        self.close()

    def _check_open(self) -> None:
        if self._is_closed:
            raise WorkerClosedError("this Worker is closed; create a new one")

    def close(self) -> None:
        """Wait for the submitted runs, close the chips and end the children.

        Ctrl-C during the wait ends the runs.
        """
        self._is_closed = True
        self._await_runs()
        self._queue.put(None)
        self._end()
        handles, self._handles = self._handles, []
        for one in handles:
            if not one.is_seen:
                one.wait()

    def create_buffer(self, nbytes: int) -> Buffer:
        """Return a buffer of zeros on this host; at level 3 all children share it."""
        return Buffer.over(self._host_memory(int(nbytes)))

    def _host_memory(self, nbytes: int) -> npt.NDArray[np.uint8]:
        return np.zeros(nbytes, np.uint8)

    def make_tensor_arg(
        self, tensor: Any, shapes: Iterable[int] | None = None, dtype: Any = None
    ) -> Tensor:
        """Return a tensor over the memory of a torch tensor, an array or a buffer."""
        return tensor_over(tensor, shapes, dtype)

    def copy_to(self, buffer: Buffer, source: Any) -> None:
        """Copy a tensor, an array or bytes to the start of a buffer."""
        self._copy(buffer, bytes_of(source), is_to=True)

    def copy_from(self, target: Any, buffer: Buffer) -> None:
        """Fill a tensor or an array from the start of a buffer."""
        self._copy(buffer, bytes_of(target), is_to=False)

    def _copy(self, buffer: Buffer, content: npt.NDArray[np.uint8], *, is_to: bool) -> None:
        if content.nbytes > buffer.nbytes:
            raise UsageError(
                f"a copy of {content.nbytes} bytes exceeds its buffer of {buffer.nbytes} bytes",
                name="buffer",
            )
        self._settle()
        if not isinstance(buffer.memory, np.ndarray):
            self._copy_on_chip(buffer, content, is_to=is_to)
        elif is_to:
            buffer.memory[: content.nbytes] = content
        else:
            content[:] = buffer.memory[: content.nbytes]

    @abstractmethod
    def _copy_on_chip(self, buffer: Buffer, content: Any, *, is_to: bool) -> None:
        """Copy bytes to or from memory of a chip."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *raised: object) -> None:
        if kind is not None and issubclass(kind, KeyboardInterrupt):
            self._abandon()
        self.close()


_Queue = SimpleQueue[tuple[Future[None], Callable[[], None]] | None]


def _take_runs(queue: _Queue) -> None:
    while (given := queue.get()) is not None:
        future, run = given
        try:
            run()
        except BaseException as error:  # noqa: BLE001 - the handle raises it
            future.set_exception(error)
        else:
            future.set_result(None)


class CallableHandle:
    """A callable that was registered at a Worker of level 2."""

    def __init__(self, target: Any) -> None:
        self.target = target


class ChipWorker(Worker):
    """A Worker of level 2.

    A run with ring sizes of its own uses another device object of the same chip. The contents of
    buffers are copied to and from it, as those of tensors with strides are.
    """

    def __init__(
        self,
        level: int = 2,
        platform: str = "a2a3sim",
        runtime: str | None = None,
        device_id: int = 0,
        *,
        enable_sdma: bool = False,
    ) -> None:
        super().__init__()
        self._open: dict[str, Any] = {
            "backend": platform,
            "runtime": runtime_of(runtime),
            "device": device_id,
        }
        self._targets: set[CallableHandle] = set()
        self._devices: dict[tuple[tuple[str, str], ...], Device] = {}
        self._buffers: set[Buffer] = set()
        self._lock = threading.Lock()

    def register(self, target: Any) -> CallableHandle:
        """Return a handle for a ChipCallable, or for a function that submits kernels."""
        handle = CallableHandle(
            target if isinstance(target, ChipCallable) else ChipCallable(target)
        )
        self._targets.add(handle)
        return handle

    def unregister(self, handle: CallableHandle) -> None:
        """Invalidate a handle."""
        self._target(handle)
        self._targets.remove(handle)

    def _target(self, handle: object) -> Any:
        if not isinstance(handle, CallableHandle) or handle not in self._targets:
            raise UsageError(
                f"{shown(handle)} is no handle of this Worker; pass one that register returned and "
                "that was not unregistered",
                name="handle",
                value=handle,
            )
        return handle.target

    def init(self, prewarm_config: CallConfig | None = None) -> Worker:
        """Open the chip for a configuration, and load the registered callables."""
        self._settle()
        device = self._device(prewarm_config or CallConfig())
        for handle in self._targets:
            device.prepare(handle.target)
        return self

    def _device(self, config: CallConfig) -> Device:
        settings = config.runtime_env.settings()
        key = tuple(settings.items())
        with self._lock:
            if key not in self._devices:
                self._devices[key] = open_device(**self._open, settings=settings)
            return self._devices[key]

    def _prepared(self, target: Any, args: Any, config: CallConfig | None) -> Callable[[], None]:
        chip, given, chosen = self._target(target), args or TaskArgs(), config or CallConfig()
        tensors, scalars = [self._located(one) for one in given.tensors], list(given.scalars)
        options, device = chosen.core(), self._device(chosen)

        def run() -> None:
            staged: dict[Buffer, Any] = {}
            copies: list[tuple[Any, Any]] = []
            values = [_value(one, device, staged, copies) for one in tensors]
            device.run(chip, *values, *map(ctypes.c_uint64, scalars), config=options)
            for part, copy in copies:
                part[...] = copy
            for buffer, content in staged.items():
                buffer.memory.from_host(content)

        return run

    def _located(self, tensor: Tensor) -> Tensor:
        """Return a tensor of this chip's memory with the buffer that contains its address."""
        address = tensor.buffer.base
        if tensor.buffer in self._buffers or isinstance(tensor.buffer.memory, np.ndarray):
            return tensor
        for one in self._buffers:
            if one.base <= address <= one.base + one.nbytes - tensor.nbytes:
                return one.tensor(tensor.shapes, tensor.dtype, byte_offset=address - one.base)
        raise UsageError(
            f"a tensor with {tensor.nbytes} bytes at {address:#x} does not lie in memory that "
            "malloc of this Worker returned, or that memory was freed",
            name="tensor",
            value=address,
        )

    def malloc(self, nbytes: int) -> Buffer:
        """Allocate memory of the chip. Its content is undefined."""
        self._settle()
        device = self._device(CallConfig())
        memory = device.empty(int(nbytes), "uint8")
        buffer = Buffer(memory.address, memory.nbytes, memory, device)
        self._buffers.add(buffer)
        return buffer

    def free(self, buffer: Buffer) -> None:
        """Free memory of the chip."""
        self._settle()
        if buffer not in self._buffers:
            raise UsageError("the buffer was freed, or is not of this Worker", name="buffer")
        self._buffers.remove(buffer)
        buffer.memory.free()

    def _copy_on_chip(self, buffer: Buffer, content: Any, *, is_to: bool) -> None:
        if buffer not in self._buffers:
            raise UsageError("the buffer was freed, or is not of this Worker", name="buffer")
        part = buffer.memory.view(0, (content.nbytes,), "uint8")
        if is_to:
            part.from_host(content)
        else:
            part.to_host(content)

    def _interrupt(self) -> None:
        for device in self._devices.values():
            device.interrupt()

    def _end(self) -> None:
        for device in self._devices.values():
            device.close()


def _value(
    tensor: Tensor, device: Device, staged: dict[Buffer, Any], copies: list[tuple[Any, Any]]
) -> Any:
    """Return the argument of a run for a tensor: memory of the device, or an array.

    ``staged`` receives the content of a buffer of another device, and ``copies`` the copy of a
    tensor with strides, which are copied back after the run.
    """
    buffer = tensor.buffer
    if buffer.device is device and tensor.is_contiguous:
        return buffer.memory.view(tensor.byte_offset, tensor.shapes, tensor.dtype.numpy)
    content = buffer.memory
    if buffer.device is not None:
        if buffer not in staged:
            staged[buffer] = buffer.memory.to_host()
        content = staged[buffer]
    part = tensor.of(content)
    if tensor.is_contiguous:
        return part
    copy = np.ascontiguousarray(part)
    if part.flags.writeable:
        copies.append((part, copy))
    return copy


class HostWorker(Worker):
    """A Worker of level 3: a child for each chip of ``device_ids``, and SUB children.

    ``config``: the settings of ptorun, by default those of ``pto config``.
    """

    def __init__(
        self,
        level: int = 3,
        platform: str = "a2a3sim",
        runtime: str | None = None,
        device_ids: Iterable[int] = (),
        num_sub_workers: int = 0,
        *,
        enable_sdma: bool = False,
        config: Any = None,
    ) -> None:
        super().__init__()
        devices = tuple(device_ids)
        self.core = CoreWorker(
            3, platform, runtime_of(runtime), devices, num_sub_workers, config=config
        )
        self.windows = Windows(self.core, platform, len(devices))

    def register(self, target: Any) -> Any:
        """Return a handle for a ChipCallable, or for a function of SUB children."""
        return self.core.register(target)

    def unregister(self, handle: Any) -> None:
        """Invalidate a handle."""
        self.core.unregister(handle)

    def init(self, prewarm_config: CallConfig | None = None) -> Worker:
        """Start the children."""
        if prewarm_config is not None:
            core_config(prewarm_config)
        self.core.init()
        return self

    def _prepared(self, target: Any, args: Any, config: CallConfig | None) -> Callable[[], None]:
        chosen = config or CallConfig()
        core_config(chosen)

        def graph(core: Any, _args: object, _config: object) -> None:
            orch = Orchestrator(self, core)
            if isinstance(target, CoreHandle):
                orch.submit_next_level(target, args, worker=0)
            else:
                target(orch, args, chosen)

        def run() -> None:
            try:
                self.core.run(graph, config=chosen.core())
            finally:
                self.windows.end_run()

        return run

    def alloc_shared_tensor(self, shapes: Iterable[int], dtype: Any = DataType.FLOAT32) -> Tensor:
        """Return a tensor of zeros on this host that all children share."""
        shape = tuple(shapes)
        return Buffer.over(self.core.shared_array(shape, DataType.of(dtype).numpy)).tensor(
            shape, dtype
        )

    def alloc_child_tensor(
        self, worker: int, shapes: Iterable[int], dtype: Any = DataType.FLOAT32
    ) -> Tensor:
        """Return a tensor in memory of the chip ``worker``; :meth:`free` frees its buffer."""
        shape, element = tuple(shapes), DataType.of(dtype)
        nbytes = int(np.prod(shape)) * element.numpy.itemsize
        base = self.core.malloc(nbytes, worker)
        return Buffer(base, nbytes, worker=worker).tensor(shape, element)

    def free(self, buffer: Buffer) -> None:
        """Free memory of a chip."""
        self._settle()
        self.core.free(buffer.base, buffer.worker or 0)

    def _host_memory(self, nbytes: int) -> npt.NDArray[np.uint8]:
        return self.core.shared_array(nbytes, np.uint8)

    def _copy_on_chip(self, buffer: Buffer, content: Any, *, is_to: bool) -> None:
        if is_to:
            self.core.copy_to(buffer.base, content, buffer.worker or 0)
        else:
            self.core.copy_from(content, buffer.base, buffer.worker or 0)

    def _interrupt(self) -> None:
        self.core.close()

    def _end(self) -> None:
        self.windows.close()
        self.core.close()


def shared_copy(worker: HostWorker, values: Any) -> Any:
    """Return a copy of a torch tensor or another array that all children of a Worker share."""
    content = bytes_of(values)
    memory = worker.core.shared_array(content.nbytes, np.uint8)
    memory[:] = content
    if hasattr(values, "data_ptr"):
        plain = sys.modules["torch"].frombuffer(memory, dtype=values.dtype)
        return plain.reshape(values.shape)
    return memory.view(values.dtype).reshape(values.shape)
