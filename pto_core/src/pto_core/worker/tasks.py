"""Python functions as typed tasks, whose parameters state what the task reads and writes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, overload

from pto_core._native import declared_number, integer, number
from pto_core._worker import TaskArgs, TensorArgType
from pto_core.errors import UsageError
from pto_core.errors.plain_functions import require_plain
from pto_core.errors.values import shown
from pto_core.kernels import ChipCallable
from pto_core.kernels.data_type import DataType
from pto_core.kernels.direction import WRITTEN, Direction, TaskSignature, task_signature
from pto_core.kernels.lost_results import checked, refuse_returned
from pto_core.kernels.typed import Parameters
from pto_core.worker.remote_buffers import RemoteTaskArgs, RemoteTensorRef

if TYPE_CHECKING:
    from pto_core._worker import TaskArgsView


TAGS = {Direction(tag.value): tag for tag in TensorArgType}


@dataclass(frozen=True)
class ChipTask:
    """A ChipCallable that a session can submit in the same way as a :class:`pto_core.Task`."""

    chip: ChipCallable
    retries: int = 0

    def arguments(self, values: Sequence[Any]) -> tuple[TaskArgs, tuple[Any, ...]]:
        """Return the arguments of a submit, and the arrays that the task writes.

        An array without a declared direction is read and written. A scalar is converted to its
        declared type. Raises UsageError for an array after a scalar, for a wrong number of
        arguments, for a number where an array is declared and the converse, and for a number that a
        Python orchestration would receive as another one, because no type is declared.
        """
        args, written, chip = TaskArgs(), [], self.chip
        for index, (value, direction, code) in enumerate(_declared(chip, values)):
            where = f"argument {index} of {chip.name}"
            is_unclear = direction is Direction.UNSPECIFIED
            if direction is Direction.SCALAR or (is_unclear and number(value) is not None):
                args.add_scalar(_chip_scalar(chip, where, value, code))
                continue
            if args.scalar_count:
                raise UsageError(
                    f"{where} is an array after a scalar; pass the arrays of a chip first",
                    name=chip.name,
                    value=index,
                )
            add_array(args, value, TAGS.get(direction, TensorArgType.INOUT), where)
            if direction is not Direction.IN:
                written.append(value)
        return args, tuple(written)


def add_array(args: TaskArgs, value: Any, tag: TensorArgType, where: str) -> None:
    """Add an array. Raises UsageError, which names the argument, for any other object."""
    try:
        args.add_tensor(value, tag)
    except UsageError as error:
        raise UsageError(f"{where}: {error}", name=where, value=type(value).__name__) from None


def _declared(chip: ChipCallable, values: Sequence[Any]) -> list[tuple[Any, Direction, int]]:
    """Return each value with its declared direction, and with the DataType of a scalar, or -1."""
    listed, is_by_tensor = chip.directions()
    is_scalar = [is_by_tensor and number(value) is not None for value in values]
    count = len(values) - sum(is_scalar)
    if listed and len(listed) != count:
        raise UsageError(
            f"{chip.name} takes {len(listed)} {'arrays' if is_by_tensor else 'arguments'}, "
            f"got {count}",
            name=chip.name,
            value=count,
            expected=len(listed),
        )
    found = iter(zip(listed, chip.type_codes(), strict=True))
    return [
        (value, *((Direction.SCALAR, -1) if scalar else next(found, (Direction.UNSPECIFIED, -1))))
        for value, scalar in zip(values, is_scalar, strict=True)
    ]


def _chip_scalar(chip: ChipCallable, where: str, value: Any, code: int) -> float:
    """Return a number of the declared type, or without a declared type the 64 bits of a number.

    A C++ orchestration receives a number without a declared type in the number's own type. A Python
    orchestration receives scalars without a declared type as signed integers.
    """
    bits, converted = declared_number(value, code, where)
    is_signed = isinstance(converted, int) and converted < 2**63
    if code < 0 and chip.function is not None and not is_signed:
        raise UsageError(
            f"{where} is {shown(value)}, which a Python orchestration would receive as another "
            "integer; declare its type in the signature of the ChipCallable, such as "
            "signature=('in', 'out', Scalar(float))",
            name=chip.name,
            value=value,
        )
    return bits if code < 0 else converted


# The kind of each argument is encoded in four bits, so one additional scalar of 64 bits holds the
# kinds of sixteen arguments.
_TENSOR, _READ_ONLY, _INT, _FLOAT, _BOOL, _UNSIGNED = range(6)
_TYPES = {_INT: DataType.INT64, _FLOAT: DataType.FLOAT64, _BOOL: DataType.BOOL}
_PER_SCALAR = 16


class Task(Generic[Parameters]):
    """A Python function that runs in a SUB child; created by :func:`task`.

    A call runs the function in this process.
    """

    def __init__(self, function: Callable[Parameters, None], *, retries: int = 0) -> None:
        if not callable(function):
            raise UsageError(
                f"{shown(function)} is not a function; put @task before a def", name="task"
            )
        require_plain("task function", function)
        count = integer(retries, 0, 2**31 - 1)
        if count is None:
            raise UsageError(
                f"retries is {shown(retries)}; set how often the task may run again, from 0",
                name="retries",
                value=retries,
            )
        self.function: Callable[..., Any] = function
        self.retries = count
        self.signature: TaskSignature = task_signature(function, None)
        self._checked = checked(function, self.signature)
        functools.update_wrapper(self, function)
        self.name = str(getattr(function, "__qualname__", function))

    def __call__(self, *args: Parameters.args, **kwargs: Parameters.kwargs) -> None:
        """Call the function in this process; raise UsageError if it returns a value."""
        self._refuse_value(self._checked(*args, **kwargs))

    def __repr__(self) -> str:
        return f"<Task {self.name!r}>"

    def arguments(self, values: Sequence[Any]) -> tuple[TaskArgs | None, tuple[Any, ...]]:
        """Return the arguments of a submit, or None, and the arrays that the task writes."""
        directions = self._directions(values)
        args, written, layout, scalars = TaskArgs(), [], [], []
        for (name, direction, code), value in zip(directions, values, strict=True):
            where = f"argument {name} of task function {self.name}"
            if direction in TAGS:
                add_array(args, value, TAGS[direction], where)
                layout.append(_READ_ONLY if direction is Direction.IN else _TENSOR)
                if direction in WRITTEN:
                    written.append(value)
            else:
                way, bits = _scalar(where, name, value, direction, code)
                layout.append(way)
                scalars.append(bits)
        for bits in (*scalars, *_packed(layout)):
            args.add_scalar(bits)
        args.has_kinds = True
        return (args if layout else None), tuple(written)

    def run(self, args: TaskArgsView) -> None:
        """Call the function in the child, with views of the arrays."""
        if not args.has_kinds and args.tensor_count + args.scalar_count > 0:
            raise UsageError(
                f"{self.name} is a @task, and was submitted with a TaskArgs; only the submit of a "
                "session can submit a @task. For orch.submit_sub register a function without "
                "@task, which receives the arguments as args.tensor(0), args.scalar(0) and so on",
                name=self.name,
            )
        values: list[Any] = []
        tensors, scalars = 0, 0
        for way in _layout(args):
            if way in (_TENSOR, _READ_ONLY):
                array = args.tensor(tensors)
                array.flags.writeable = way == _TENSOR
                values.append(array)
                tensors += 1
            else:
                values.append(args.scalar(scalars, _TYPES.get(way)))
                scalars += 1
        self._refuse_value(self._checked(*values))

    def _refuse_value(self, returned: Any) -> None:
        if returned is not None:
            refuse_returned("task function", self.name, returned)

    def _directions(self, values: Sequence[Any]) -> list[tuple[str, Direction, int]]:
        listed, required, takes_more, rest = self.signature
        if not required <= len(values) <= (len(values) if takes_more else len(listed)):
            most = "or more" if takes_more else f"to {len(listed)}"
            expected = str(required) if required == len(listed) else f"{required} {most}"
            names = ", ".join(name for name, _, _ in listed)
            raise UsageError(
                f"task function {self.name} takes {expected} arguments ({names}), "
                f"got {len(values)}",
                name=self.name,
                value=len(values),
                expected=expected,
            )
        extra = len(values) - len(listed)
        found = [(name, Direction(way), code) for name, way, code in listed[: len(values)]]
        return found + [(f"number {len(listed) + i}", Direction(rest), -1) for i in range(extra)]


@dataclass(frozen=True)
class TaskDecorator:
    """The decorator that converts a function to a task."""

    retries: int

    def __call__(self, function: Callable[Parameters, None]) -> Task[Parameters]:
        """Return the task; raises UsageError."""
        return Task(function, retries=self.retries)


@overload
def task(function: Callable[Parameters, None], *, retries: int = 0) -> Task[Parameters]: ...


@overload
def task(function: None = None, *, retries: int = 0) -> TaskDecorator: ...


def task(
    function: Callable[..., None] | None = None, *, retries: int = 0
) -> Task[...] | TaskDecorator:
    """Convert a Python function to a task that can be submitted in a session.

    The annotations of the parameters state how the function uses each argument, as in a kernel::

        @task
        def scale(x: In, factor: Scalar, out: Out):
            np.multiply(x, factor, out=out)

    A child calls the function with a NumPy view for each array, and with numbers. The function
    writes its results into the arrays. It fails with a UsageError if it returns a value other than
    None, or if it assigns a new array to the name of an Out or InOut parameter. ``retries``: how
    often the task may run again after it failed or its child died; a value above 0 declares that
    repeating it is safe. Before a repetition, arrays that it changes in place are restored.
    """
    if function is None:
        return TaskDecorator(retries)
    return Task(function, retries=retries)


def _scalar(where: str, name: str, value: Any, direction: Direction, code: int) -> tuple[int, int]:
    """Return the kind of a scalar and its 64 bits; a float is sent as a double."""
    is_unclear = direction is Direction.UNSPECIFIED and not isinstance(value, int)
    if is_unclear and number(value) is None:
        raise UsageError(
            f"{where} is {type(value).__name__}, and its direction is unknown: annotate the "
            "parameter In, Out or InOut for an array, Scalar for a number",
            name=name,
            value=type(value).__name__,
            expected="In, Out, InOut or Scalar",
        )
    bits, converted = declared_number(value, code, where)
    if isinstance(converted, float):
        return _FLOAT, declared_number(converted, DataType.FLOAT64, where)[0]
    if isinstance(converted, bool):
        return _BOOL, bits
    return (_INT if converted < 2**63 else _UNSIGNED), bits


def _packed(layout: Sequence[int]) -> list[int]:
    packed = [0] * -(-len(layout) // _PER_SCALAR)
    for index, way in enumerate(layout):
        packed[index // _PER_SCALAR] |= way << 4 * (index % _PER_SCALAR)
    return packed


def _layout(args: TaskArgsView) -> list[int]:
    """Return the kind of each argument: the last ceil(n/16) scalars hold the kinds of n."""
    total = args.tensor_count + args.scalar_count
    count = total - -(-total // (_PER_SCALAR + 1))
    first = args.scalar_count - (total - count)
    return [
        int(args.scalar(first + index // _PER_SCALAR)) >> 4 * (index % _PER_SCALAR) & 15
        for index in range(count)
    ]


@dataclass(frozen=True)
class GraphTask:
    """A graph function that a session can submit in the same way as a :class:`pto_core.Task`.

    Its parameters have no directions, so each array is read and written.
    """

    name: str
    retries: int = 0

    def arguments(self, values: Sequence[Any]) -> tuple[TaskArgs | None, tuple[Any, ...]]:
        """Return the arguments of a submit, or None, and the arrays that the task writes.

        The function receives the arrays as ``args.tensor(0)`` and so on, and the integers as
        ``args.scalar(0)`` and so on; one that may be negative is ``args.scalar(0, int)``. A
        TaskArgs must be the only value; it states the use of each
        array. Raises UsageError for a number that is not an integer.
        """
        if len(values) == 1 and isinstance(values[0], TaskArgs):
            return values[0], ()
        is_remote = any(isinstance(value, RemoteTensorRef) for value in values)
        args, written = RemoteTaskArgs() if is_remote else TaskArgs(), []
        for index, value in enumerate(values):
            where = f"argument {index} of the graph function {self.name}"
            scalar = number(value)
            if scalar is None:
                add_array(args, value, TensorArgType.INOUT, where)
                written.append(value)
            elif isinstance(scalar[1], int):
                args.add_scalar(scalar[0])
            else:
                raise UsageError(
                    f"{where} is {shown(value)}; a graph function receives arrays and integers "
                    "only; pass this value in an array",
                    name=self.name,
                    value=value,
                )
        return (args if values else None), tuple(written)
