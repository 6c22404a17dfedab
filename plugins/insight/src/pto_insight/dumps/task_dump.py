"""The file of one dumped task: its arguments before and after the call of its kernel."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pto_core.cases.report import from_plain, to_plain
from pto_core.kernels import DataType
from pto_core.kernels.data_type import ML_DTYPES
from pto_core.toolchain import BuildRequest
from pto_insight.graphs.archive import Archive, read_archive, refusing_damage, write_archive

_KIND = "task dump 1"
RETURNED, FAILED, UNFINISHED = "returned", "failed", "did not return"
UNKNOWN = "not known"


@dataclass(frozen=True)
class DumpedArgument:
    """An array argument. ``name``: the memory that it names, such as ``add#1.2``.

    ``strides`` are in bytes. ``address``: of its first element in the run. ``buffer`` and
    ``buffer_bytes``: the memory to which it belongs. ``tag``: how the task declares its use, or an
    empty text. In ``host_build_graph`` and ``aicpu_build_graph`` arguments are addresses: each
    array is the whole buffer, as bytes.
    """

    argument: int
    name: str
    tag: str
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    address: int
    buffer: int
    buffer_bytes: int


@dataclass(frozen=True)
class TaskDump:
    """One call of a kernel.

    ``task``: its number in the order of submits; None if it is not known. ``lane``: the AIV lane of
    a task that runs on several cores of a cluster. ``state``: ``returned``, ``failed``, ``did not
    return``, or ``not known`` because its record is lost. ``library``: the path of the compiled
    kernel, empty for a Python function; ``digest``: the SHA-256 of its content; ``request``: how it
    was built, if this is known. ``scalars``: by position, as 64 bits. ``left_out``: the number of
    array arguments that were not selected. ``before`` and ``after``: the arrays by position; a type
    that NumPy does not have is stored as bits. ``ended``: its place in the order in which the
    recorded calls ended.
    """

    kernel: str
    task: int | None
    id: int
    block: int
    lane: int | None
    core: str
    run: int
    device: int
    backend: str
    runtime: str
    file: str | None
    line: int | None
    state: str
    is_together: bool
    library: str
    digest: str
    request: BuildRequest | None
    payload_address: int
    blocks: int
    scalars: dict[int, int]
    arguments: tuple[DumpedArgument, ...]
    left_out: int
    payload: NDArray[Any] = field(repr=False)
    before: dict[int, NDArray[Any]] = field(repr=False)
    after: dict[int, NDArray[Any]] = field(repr=False)
    ended: int = 0

    @property
    def label(self) -> str:
        """The kernel and the number of the task, such as ``add#3``, and the block, if any."""
        name = f"{self.kernel}#{self.task}" if self.task is not None else f"{self.kernel}.{self.id}"
        name += "" if self.lane is None else f".lane{self.lane}"
        return f"{name}.block{self.block}" if self.blocks > 1 else name

    @property
    def where(self) -> str:
        """The source line of the submit, or an empty text."""
        return f"{self.file}:{self.line}" if self.file else ""

    def argument(self, position: int) -> DumpedArgument:
        """Return one array argument."""
        return next(one for one in self.arguments if one.argument == position)

    def write(self, path: Path) -> None:
        """Write the file. Raises OSError."""
        arrays = {"payload": self.payload}
        for phase in ("before", "after"):
            arrays |= {f"{phase}{at}": array for at, array in getattr(self, phase).items()}
        plain = replace(self, payload=None, before={}, after={})  # type: ignore[arg-type]
        write_archive(path, Archive(_KIND, to_plain(plain), arrays))

    @staticmethod
    def read(path: Path) -> TaskDump:
        """Read a file. Raises UsageError for another file, and OSError."""
        what, advice = "the dump of a task", "write one with pto run --dump"
        archive = read_archive(path, what, advice)
        with refusing_damage(path, what, advice):
            if archive.kind != _KIND:
                raise ValueError(f"it is of the kind {archive.kind!r}")
            content, arrays = archive.content, archive.arrays
            phases = {
                phase: {
                    int(name.removeprefix(phase)): array
                    for name, array in arrays.items()
                    if name.startswith(phase)
                }
                for phase in ("before", "after")
            }
            content |= {
                "arguments": from_plain(tuple[DumpedArgument, ...], content["arguments"]),
                "request": from_plain(BuildRequest, content["request"]),
                "scalars": {int(at): value for at, value in content["scalars"].items()},
                "payload": arrays["payload"],
            }
            return TaskDump(**{**content, **phases})

    def values(self, phase: str, position: int) -> NDArray[Any] | None:
        """Return an array ``before`` or ``after`` the call in its data type; None if not kept.

        bfloat16 and float8 need the package ``ml_dtypes``.
        """
        stored = getattr(self, phase).get(position)
        if stored is None:
            return None
        kind = DataType[self.argument(position).dtype.upper()].numpy
        found: NDArray[Any] = stored.view(kind)
        return found


def stored_type(dtype: DataType) -> np.dtype[Any]:
    """Return the type in which a file has the elements of an array."""
    name = dtype.name.lower()
    if name in ML_DTYPES:
        return np.dtype("uint16" if name == "bfloat16" else "uint8")
    return dtype.numpy
