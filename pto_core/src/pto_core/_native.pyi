from collections.abc import Callable, Sequence
from typing import Any, overload

import numpy
import numpy.typing

from pto_core.kernels.typed import A, Argument, B, C, D, E, F, TypedKernel

ABI_VERSION: int = 0

source_digest: str = ...

def demangle(symbol: str) -> str: ...
def number(value: object) -> tuple[int, bool | int | float] | None: ...
def declared_number(value: object, code: int, where: str) -> tuple[int, bool | int | float]: ...
def integer(value: object, least: int, most: int) -> int | None: ...

class DeviceArray:
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> numpy.dtype[Any]: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def address(self) -> int: ...
    def to_host(self, out: Any = None) -> Any: ...
    def from_host(self, array: Any) -> None: ...
    def view(
        self, offset: int, shape: int | Sequence[int], dtype: numpy.typing.DTypeLike
    ) -> DeviceArray: ...
    def free(self) -> None: ...
    def reshape(self, shape: int | Sequence[int]) -> DeviceArray: ...
    def __getitem__(self, index: int | slice | tuple[int | slice, ...]) -> DeviceArray: ...
    def transpose(self, axes: Sequence[int] | None = None) -> DeviceArray: ...
    @property
    def T(self) -> DeviceArray: ...  # noqa: N802
    def __repr__(self) -> str: ...

class Scope:
    def __enter__(self) -> None: ...
    def __exit__(self, kind: object, error: object, trace: object) -> None: ...

class HeldCluster:
    def __enter__(self) -> int: ...
    def __exit__(self, kind: object, error: object, trace: object) -> None: ...

class Graph:
    @overload
    def submit(
        self,
        task: int,
        /,
        *args: object,
        cluster: int | None = None,
        after: int | Sequence[int] = (),
    ) -> int: ...
    @overload
    def submit(
        self,
        task: TypedKernel[[]],
        /,
        *,
        cluster: int | None = None,
        after: int | Sequence[int] = (),
    ) -> int: ...
    @overload
    def submit(
        self,
        task: TypedKernel[[A]],
        a: A | Argument,
        /,
        *,
        cluster: int | None = None,
        after: int | Sequence[int] = (),
    ) -> int: ...
    @overload
    def submit(
        self,
        task: TypedKernel[[A, B]],
        a: A | Argument,
        b: B | Argument,
        /,
        *,
        cluster: int | None = None,
        after: int | Sequence[int] = (),
    ) -> int: ...
    @overload
    def submit(
        self,
        task: TypedKernel[[A, B, C]],
        a: A | Argument,
        b: B | Argument,
        c: C | Argument,
        /,
        *,
        cluster: int | None = None,
        after: int | Sequence[int] = (),
    ) -> int: ...
    @overload
    def submit(
        self,
        task: TypedKernel[[A, B, C, D]],
        a: A | Argument,
        b: B | Argument,
        c: C | Argument,
        d: D | Argument,
        /,
        *,
        cluster: int | None = None,
        after: int | Sequence[int] = (),
    ) -> int: ...
    @overload
    def submit(
        self,
        task: TypedKernel[[A, B, C, D, E]],
        a: A | Argument,
        b: B | Argument,
        c: C | Argument,
        d: D | Argument,
        e: E | Argument,
        /,
        *,
        cluster: int | None = None,
        after: int | Sequence[int] = (),
    ) -> int: ...
    @overload
    def submit(
        self,
        task: TypedKernel[[A, B, C, D, E, F]],
        a: A | Argument,
        b: B | Argument,
        c: C | Argument,
        d: D | Argument,
        e: E | Argument,
        f: F | Argument,
        /,
        *,
        cluster: int | None = None,
        after: int | Sequence[int] = (),
    ) -> int: ...
    @overload
    def submit(
        self,
        task: TypedKernel[...],
        a: object,
        b: object,
        c: object,
        d: object,
        e: object,
        f: object,
        g: object,
        /,
        *rest: object,
        cluster: int | None = None,
        after: int | Sequence[int] = (),
    ) -> int: ...
    def submit_block(
        self,
        task: object,
        /,
        *args: Any,
        block_dim: int,
        clusters: Sequence[int] | None = None,
        after: int | Sequence[int] = (),
    ) -> int: ...
    def add_task(self, kernel: object, args: tuple[Any, ...] | list[Any]) -> int: ...
    def add_successor(self, producer: int, consumer: int) -> None: ...
    def publish(self, task: int) -> None: ...
    def empty(self, shape: int | Sequence[int], dtype: numpy.typing.DTypeLike) -> DeviceArray: ...
    def tensor(self, shape: int | Sequence[int], dtype: numpy.typing.DTypeLike) -> DeviceArray: ...
    def pipe(self) -> DeviceArray: ...
    def add_dep(self, producer: int, consumer: int) -> None: ...
    def scope(self) -> Scope: ...
    def allocate_cluster(self) -> int: ...
    def free_cluster(self, cluster: int) -> None: ...
    def cluster(self) -> HeldCluster: ...

class Program:
    def __init__(
        self,
        *,
        name: str,
        parameters: Sequence[str],
        required: int,
        maximum: int,
        directions: bytes,
        codes: Sequence[int],
        by_tensor: bool,
        function: object | None = None,
        library: int = 0,
        entry: str = "",
    ) -> None: ...
    @property
    def name(self) -> str: ...
    @property
    def is_python(self) -> bool: ...
    def add_child(self, func_id: int, device: Device, callable: object) -> None: ...

class Device:
    def __init__(
        self,
        *,
        backend_library: str,
        runtime_library: str,
        variant: str,
        artefacts: list[tuple[str, str]],
        number: int,
        backend_options: dict[str, str],
        runtime_options: dict[str, str],
    ) -> None: ...
    def close(self) -> tuple[int, int]: ...
    @property
    def is_open(self) -> bool: ...
    @property
    def is_lost(self) -> bool: ...
    @property
    def can_trace(self) -> bool: ...
    @property
    def has_streams(self) -> bool: ...
    @property
    def has_tensors(self) -> bool: ...
    @property
    def is_planning_missing(self) -> bool: ...
    @property
    def blocks(self) -> int: ...
    @property
    def process(self) -> tuple[str, int, int] | None: ...
    def run(
        self,
        program: Program,
        arguments: tuple[Any, ...],
        call_config: bytes,
        timeout_s: float | None,
        task_timeout_s: float | None,
        hazards: int,
        measures: bool,
        trace_settings: tuple[int, int, int, int, str | None] | None,
        traces: list[Any],
        stream: int,
    ) -> tuple[Any, ...]: ...
    def empty(self, shape: int | Sequence[int], dtype: numpy.typing.DTypeLike) -> DeviceArray: ...
    def to_device(self, array: Any) -> DeviceArray: ...
    def activity(self) -> list[tuple[str, int, int, int]]: ...
    def set_loader(self, load: Callable[[object], None]) -> None: ...
    def load_kernel(
        self,
        callable: object,
        *,
        name: str,
        core_type: int,
        path: str | None,
        function: Callable[..., object] | None,
        declared: Sequence[tuple[int, Sequence[int] | None]] | None,
        task: tuple[list[tuple[str, int, int]], int, bool, int],
    ) -> None: ...
    def load_library(self, path: str) -> int: ...
