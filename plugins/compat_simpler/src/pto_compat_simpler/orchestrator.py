"""The orchestrator of level 3: submits, scopes and domains."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from pto_compat_simpler.task_interface import (
    Buffer,
    CallConfig,
    CommBufferSpec,
    DataType,
    TaskArgs,
    Tensor,
)
from pto_compat_simpler.windows import Domain
from pto_core.errors import UnsupportedError, UsageError
from pto_core.published import ContinuousTensor, TaskArgs as CoreTaskArgs


class Orchestrator:
    """Submits the tasks of a run of level 3.

    ``worker``: the Worker of the run. ``callables``: the handles of a scene test, by name.
    """

    def __init__(self, worker: Any, core: Any) -> None:
        self.worker = worker
        self.callables: Any = None
        self._core = core
        self._scopes: list[Any] = []

    def submit_next_level(
        self, handle: Any, args: TaskArgs | None, config: CallConfig | None = None, *, worker: int
    ) -> Any:
        """Submit a task to a chip. Returns its handle."""
        options = None if config is None else core_config(config)
        return self._core.submit_next_level(handle, _core_args(args), options, worker=worker)

    def submit_next_level_group(
        self,
        handle: Any,
        args_list: Sequence[TaskArgs],
        config: CallConfig | None = None,
        *,
        workers: Sequence[int] | None = None,
    ) -> Any:
        """Submit one task that runs on several chips at once. Returns its handle."""
        options = None if config is None else core_config(config)
        given = [_core_args(args) for args in args_list]
        return self._core.submit_next_level_group(handle, given, options, workers=workers)

    def submit_sub(self, handle: Any, args: TaskArgs | None = None) -> Any:
        """Submit a task to a SUB child. Returns its handle."""
        return self._core.submit_sub(handle, _core_args(args))

    def submit_sub_group(self, handle: Any, args_list: Sequence[TaskArgs]) -> Any:
        """Submit one task that runs on several SUB children at once. Returns its handle."""
        return self._core.submit_sub_group(handle, [_core_args(args) for args in args_list])

    def alloc(self, shapes: Iterable[int], dtype: Any = DataType.FLOAT32) -> Tensor:
        """Return a tensor in a heap ring, which lives until the end of the scope."""
        shape, element = tuple(shapes), DataType.of(dtype)
        memory = self._core.alloc(shape, element.numpy)
        return Buffer(memory.address, memory.nbytes, memory).tensor(shape, element)

    def scope(self) -> Any:
        """Return a scope for a ``with`` block."""
        return self._core.scope()

    def scope_begin(self) -> None:
        """Open a scope."""
        self._scopes.append(scope := self._core.scope())
        scope.__enter__()

    def scope_end(self) -> None:
        """Close the scope that :meth:`scope_begin` opened last."""
        if not self._scopes:
            raise UsageError("scope_end without scope_begin; open a scope first")
        self._scopes.pop().__exit__(None, None, None)

    def allocate_domain(
        self,
        name: str,
        workers: Iterable[int],
        window_size: int,
        buffers: Iterable[CommBufferSpec] = (),
    ) -> Domain:
        """Return windows for chips, divided into ``buffers``. They exist until the run is over."""
        found: Domain = self.worker.windows.domain(
            name, tuple(workers), window_size, tuple(buffers), self._core
        )
        return found

    def allocate_global_domain(
        self, name: str, window_size: int, buffers: Iterable[CommBufferSpec] = ()
    ) -> Domain:
        """Return windows for all chips of the Worker; see :meth:`allocate_domain`."""
        return self.allocate_domain(name, range(self.worker.windows.chips), window_size, buffers)


def _core_args(args: TaskArgs | None) -> CoreTaskArgs:
    """Return the arguments of a task in the form of the core."""
    found = CoreTaskArgs()
    if args is None:
        return found
    for tensor, tag in zip(args.tensors, args.tags, strict=True):
        found.add_tensor(_core_tensor(tensor), tag)
    for scalar in args.scalars:
        found.add_scalar(scalar)
    return found


def _core_tensor(tensor: Tensor) -> Any:
    if not tensor.is_contiguous:
        raise UnsupportedError(
            f"a tensor with shape {tensor.shapes} has the strides {tensor.strides}; tasks of level "
            "3 take contiguous tensors, so pass a contiguous part, and a view of it in the "
            "orchestration",
            name="strides",
            value=tensor.strides,
        )
    memory, element = tensor.buffer.memory, tensor.dtype.numpy
    if isinstance(memory, np.ndarray):
        return tensor.of(memory)
    if isinstance(memory, ContinuousTensor):
        return memory.part(tensor.byte_offset, tensor.shapes, element)
    address = tensor.buffer.base + tensor.byte_offset
    return ContinuousTensor.from_pointer(address, tensor.shapes, element, child_memory=True)


def core_config(config: CallConfig) -> Any:
    """Return the options of a task of level 3. Raises UnsupportedError for ring sizes."""
    if settings := config.runtime_env.settings():
        raise UnsupportedError(
            f"runtime_env sets {', '.join(settings)}: the chips of a Worker of level 3 have one "
            "size for all runs; set PTO2_RING_TASK_WINDOW, PTO2_RING_HEAP or PTO2_RING_DEP_POOL "
            "before the Worker is created",
            name="runtime_env",
            value=settings,
        )
    return config.core()
