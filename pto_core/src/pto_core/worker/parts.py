"""Parts of arrays and tensors that are not contiguous, as arguments of tasks.

A child receives the smallest contiguous tensor that contains the part, and shape, strides and
offset of the part in it. The engine receives a box of the whole array. Tasks that use disjoint
boxes of one array are not ordered. The box is the part itself, if all steps of the part are 1 or
-1; otherwise it contains more, and the part is not exact. The box is missing if the part is none of
the array in its present shape, for instance after a reshape; then the whole tensor counts as used.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from pto_core._worker import ContinuousTensor
from pto_core.errors import UsageError
from pto_core.kernels.data_type import DataType
from pto_core.worker.values import memory_at

_Box = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], bool]


class TensorPart:
    """A part of a tensor that is not contiguous, such as ``s.empty((8, 8))[:, 2:4]``.

    The submit of a ``@task`` accepts it where an array is declared.
    """

    __slots__ = ("_source", "_view")

    def __init__(self, source: ContinuousTensor, view: npt.NDArray[Any]) -> None:
        self._source: Final = source
        # In a captured graph there is no memory at its address, so only shape and strides are used.
        self._view: Final = view

    @property
    def shape(self) -> tuple[int, ...]:
        """The extents, slowest dimension first."""
        return self._view.shape

    @property
    def dtype(self) -> DataType:
        """The DataType."""
        return self._source.dtype

    def numpy(self) -> npt.NDArray[Any]:
        """Return a NumPy array over the memory. Raises UsageError if there is none."""
        self._view.flags.writeable = self._source.numpy().flags.writeable
        return self._view

    def __getitem__(self, key: Any) -> ContinuousTensor | TensorPart:
        return _indexed(self._source, self._view, key)

    def __repr__(self) -> str:
        strides = self._view.strides
        return f"TensorPart(shape={self.shape}, strides={strides}, dtype={self.dtype.name})"

    def __reduce__(self) -> Any:
        raise TypeError("a part of a tensor cannot be pickled; pass it where an array is declared")

    def region(self) -> PartArgument:
        """Return the part as an argument of a task."""
        return _region(self._source, self._view)


class PartArgument:
    """A part as an argument of a task.

    ``tensor``: the smallest tensor that contains it. ``axes``: the offset of its first element in
    the tensor, then the extent and stride of each dimension, in bytes; empty if it is the tensor.
    ``is_exact``: whether tasks are only ordered with those that use the same elements.
    """

    __slots__ = ("axes", "is_exact", "tensor")

    def __init__(
        self, source: ContinuousTensor, view: npt.NDArray[Any], whole: tuple[tuple[int, ...], int]
    ) -> None:
        """``whole``: the shape of the source, and the size of its elements."""
        before = view.__array_interface__["data"][0] - source.address
        layout = before, view.itemsize, view.shape, view.strides, view.flags.c_contiguous
        offset, shape, box, self.axes, self.is_exact = _placed(*whole, *layout)
        self.tensor = source.part(offset, shape, view.dtype, *box)


def part_of(tensor: ContinuousTensor, key: Any) -> ContinuousTensor | TensorPart:
    """Return ``tensor[key]``: a tensor if it is contiguous, otherwise a part. Raises UsageError."""
    if tensor.address == 0 or tensor.child_memory:
        raise UsageError(
            f"{tensor!r} has no memory of this machine, so that parts of it cannot be used; slice "
            "it in the function of a task",
            name="tensor",
            value=tensor,
        )
    whole = memory_at(tensor.address, tensor.nbytes, tensor).view(tensor.dtype.numpy)
    return _indexed(tensor, whole.reshape(tensor.shape), key)


def region_of(array: npt.NDArray[Any]) -> PartArgument:
    """Return a part of an array of the Worker as an argument. Raises UsageError."""
    whole = array
    while isinstance(whole.base, np.ndarray):
        whole = whole.base
    if whole.dtype.kind == "V":  # memory of a type of ml_dtypes
        whole = whole.view(f"u{whole.itemsize}")
    if not array.flags.writeable:
        whole = whole.view()
        whole.flags.writeable = False
    return PartArgument(ContinuousTensor.from_array(whole), array, (whole.shape, whole.itemsize))


def extent_of(array: npt.NDArray[Any]) -> tuple[int, int]:
    """Return the address of the first byte that an array uses, and the size up to its last byte."""
    first, nbytes = _extent(array.shape, array.strides, array.itemsize)
    return array.__array_interface__["data"][0] + first, nbytes


def _extent(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> tuple[int, int]:
    """Return the first byte that an array uses, relative to its first element, and the size."""
    steps = [(count - 1) * stride for count, stride in zip(shape, strides, strict=True)]
    if 0 in shape:
        return 0, 0
    return sum(step for step in steps if step < 0), sum(map(abs, steps)) + itemsize


def received(tensor: npt.NDArray[Any], axes: Sequence[int]) -> npt.NDArray[Any]:
    """Return the array of a part, from the arguments of a task."""
    return np.ndarray(axes[1::2], tensor.dtype, tensor, axes[0], axes[2::2])


def _indexed(
    source: ContinuousTensor, view: npt.NDArray[Any], key: Any
) -> ContinuousTensor | TensorPart:
    listed = key if isinstance(key, tuple) else (key,)
    for one in listed:
        if isinstance(one, bool) or not (
            one is None or one is Ellipsis or isinstance(one, slice | int | np.integer)
        ):
            raise UsageError(
                "a part of a tensor is selected by slices and integers; use the array in the "
                "function of a task for other indices",
                name="key",
                value=key,
            )
    # With an Ellipsis the result is an array also if all indices are integers.
    found = view[key if Ellipsis in listed else (*listed, Ellipsis)]
    is_contiguous = found.flags.c_contiguous
    return _region(source, found).tensor if is_contiguous else TensorPart(source, found)


def _region(source: ContinuousTensor, view: npt.NDArray[Any]) -> PartArgument:
    return PartArgument(source, view, (source.shape, source.dtype.nbytes))


@functools.lru_cache(4096)
def _placed(
    whole: tuple[int, ...],
    whole_itemsize: int,
    before: int,
    itemsize: int,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    is_contiguous: bool,
) -> tuple[int, tuple[int, ...], tuple[tuple[int, ...], ...], tuple[int, ...], bool]:
    """Return offset and shape of the tensor of a part, its box or (), axes, and is_exact.

    ``before``: the bytes from the begin of the whole array to the first element of the part.
    """
    first, nbytes = _extent(shape, strides, itemsize)
    offset = before + first
    box = _box(whole, whole_itemsize, offset, itemsize, shape, strides) if nbytes else None
    is_exact = box is not None and box[3]
    if is_contiguous:  # the part is the tensor
        return offset, shape, box[:3] if box and is_exact else (), (), True
    axes = (-first, *(number for axis in zip(shape, strides, strict=True) for number in axis))
    return offset, (-(-nbytes // itemsize),), box[:3] if box else (), axes, is_exact


def _box(
    whole: tuple[int, ...],
    whole_itemsize: int,
    offset: int,
    itemsize: int,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
) -> _Box | None:
    """Return raw, low and extent of the box of a part, and whether it contains no more.

    ``whole``: the shape of the array that has the part ``offset`` bytes after its begin. The
    fastest dimension of the box is the first, and counts bytes. Returns None if there is no box.
    """
    raw = list(whole[::-1] or (1,))
    raw[0] *= whole_itemsize
    distances, low = [], []  # of neighbours in each dimension; the first element of the part
    distance = 1
    for size in raw:
        distances.append(distance)
        low.append(offset // distance % size)
        distance *= size
    extent = [itemsize] + [1] * (len(raw) - 1)
    is_exact = True
    for count, stride in zip(shape, map(abs, strides), strict=True):
        if count == 1 or stride == 0:
            continue
        dim = max(dim for dim, distance in enumerate(distances) if distance <= stride)
        step, rest = divmod(stride, distances[dim])
        unit = itemsize if dim == 0 else 1
        if rest:
            return None
        is_exact &= step == unit and extent[dim] == unit
        extent[dim] += (count - 1) * step
    if any(first + size > most for first, size, most in zip(low, extent, raw, strict=True)):
        return None
    return tuple(raw), tuple(low), tuple(extent), is_exact


def refuse_masked(value: object, where: str) -> None:
    """Raise UsageError for a masked array; shared memory contains no mask."""
    if isinstance(value, np.ma.MaskedArray):
        raise UsageError(
            f"{where} is a masked array, which would lose its mask; pass x.filled(value), or "
            "x.data and x.mask as two arrays, or pass it to a parameter without annotation",
            name=where,
            value=type(value).__name__,
        )
