"""Directions and core types: how a task uses each argument, and on which cores a kernel runs."""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from pto_core._native import DeviceArray
from pto_core.errors import UsageError
from pto_core.errors.values import listed, shown
from pto_core.kernels.data_type import DataType, shape_of

if TYPE_CHECKING:
    from numpy.typing import DTypeLike


class CoreType(IntEnum):
    """The type of a core: AIC for matrix operations, AIV for vector operations.

    ANY: a compiled kernel whose type each submit of a C++ orchestration states.
    """

    ANY = -1
    AIC = 0
    AIV = 1

    @classmethod
    def of(cls, core: object) -> CoreType:
        """Convert ``"aic"``, ``"aiv"`` or a CoreType to a CoreType; raises UsageError."""
        if isinstance(core, CoreType):
            return core
        if isinstance(core, str) and core.upper() in cls.__members__:
            return cls[core.upper()]
        raise UsageError(
            f"core {shown(core)} is not a core type; use 'aic' or 'aiv'",
            name="core",
            value=core,
            expected="aic or aiv",
        )


class Direction(IntEnum):
    """How an argument is used and copied; the values are ``PTO_TAG_*`` and ``PTO_ANY``."""

    IN = 0
    OUT = 1
    INOUT = 2
    OUT_EXISTING = 3
    NO_DEP = 4
    SCALAR = 5
    UNSPECIFIED = 255
    """No direction is declared: the array is copied in and, if it is writable, also copied back."""

    def __call__(
        self,
        dtype: DTypeLike | DataType | DeviceArray | None = None,
        shape: int | Sequence[int] | None = None,
    ) -> Parameter:
        """Return a parameter with this direction, like ``In(dtype, shape)``. Raises UsageError."""
        details: dict[str, Any] = {"dtype": dtype, "shape": shape}
        kind = type(_parameter(self))
        return kind(**{key: value for key, value in details.items() if value is not None})


WRITTEN = frozenset({Direction.OUT, Direction.INOUT, Direction.OUT_EXISTING})


class Parameter:
    """A parameter with its direction. For an array, it may also state data type and shape.

    ``dtype``: any type that :meth:`DataType.of` accepts. ``shape``: a tuple of ints, or one int. If
    the constructor receives only a device array, the array becomes the ``value``, and the object is
    an argument for ``rt.submit``.
    """

    direction: ClassVar[Direction]
    __slots__ = ("dtype", "shape", "value")

    def __init__(self, dtype: Any = None, shape: int | Sequence[int] | None = None) -> None:
        self.value: DeviceArray | None = None
        if isinstance(dtype, DeviceArray) and shape is None:
            self.value = dtype
            dtype = None
        self.dtype = None if dtype is None else DataType.of(dtype)
        self.shape = None if shape is None else shape_of(shape)
        if (self.dtype is None) != (self.shape is None):
            raise UsageError(
                f"{type(self).__name__} has "
                f"{'a shape, no data type' if self.dtype is None else 'a data type, no shape'}; "
                "pass both or neither, as in In('float32', (128, 128))"
            )

    def __repr__(self) -> str:
        details = "" if self.dtype is None else f"{self.dtype.name.lower()!r}, {self.shape}"
        return f"{type(self).__name__}({details})"


class In(Parameter):
    """The array is only read: copied in, but not back."""

    direction = Direction.IN
    __slots__ = ()


class Out(Parameter):
    """The array is only written: not copied in, but copied back after success."""

    direction = Direction.OUT
    __slots__ = ()


class InOut(Parameter):
    """The array is read and written: copied in, and copied back after success."""

    direction = Direction.INOUT
    __slots__ = ()


class OutExisting(Parameter):
    """For tasks: the array is written without waiting for its earlier users; copied like Out."""

    direction = Direction.OUT_EXISTING
    __slots__ = ()


class NoDep(Parameter):
    """For tasks: the array adds no dependency, and the task does not keep its memory alive."""

    direction = Direction.NO_DEP
    __slots__ = ()


class Scalar(Parameter):
    """A number. ``dtype`` is ``int``, ``float``, ``bool`` or a data type; the default is int64.

    A number that is passed to the parameter is converted to that type, exactly or with its
    rounding; a number that the type does not contain is a UsageError. The class ``Scalar`` without
    parentheses and the text ``"scalar"`` declare no type: each number keeps its own.
    """

    direction = Direction.SCALAR
    __slots__ = ()

    def __init__(self, dtype: Any = int) -> None:
        super().__init__(None)
        self.dtype = None if dtype is None else DataType.of(dtype)
        self.shape = ()
        if self.dtype is not None and self.dtype >= DataType.COMPLEX64:
            raise UsageError(
                f"Scalar has the data type {self.dtype.name.lower()}; pass such numbers in an "
                "array",
                name="dtype",
                value=dtype,
            )

    def __repr__(self) -> str:
        return "Scalar" if self.dtype is None else f"Scalar({self.dtype.name.lower()!r})"


f32, f64 = Scalar("float32"), Scalar("float64")
i32, i64 = Scalar("int32"), Scalar("int64")

_BY_WORD: dict[str, type[Parameter]] = {
    "in": In,
    "out": Out,
    "inout": InOut,
    "scalar": Scalar,
    "out_existing": OutExisting,
    "no_dep": NoDep,
}

# The names of annotations that a module may import for type checkers only.
_ANNOTATION_NAMES: dict[str, Any] = {
    "Annotated": typing.Annotated,
    "Direction": Direction,
    **{kind.__name__: kind for kind in _BY_WORD.values()},
    "f32": f32,
    "f64": f64,
    "i32": i32,
    "i64": i64,
}

SignatureEntry = str | Parameter | type[Parameter] | Direction


def parse_signature(entries: Iterable[SignatureEntry]) -> tuple[Parameter, ...]:
    """Return the parameters of a signature; entries may be texts, classes or instances."""
    advice = "pass a list such as ['in', 'out', 'scalar']"
    return tuple(map(_parameter, listed("signature", entries, advice)))


def parameters_of_function(function: Callable[..., Any], skip: int) -> list[tuple[Direction, int]]:
    """Return direction and code of each positional parameter after the first ``skip``.

    The code is the declared :class:`DataType`, or -1.
    """
    parameters = _positional(function)[skip:]
    annotations = _annotations(function)
    return [_declared(annotations.get(parameter.name)) for parameter in parameters]


class TaskSignature(NamedTuple):
    """The facts that a submit needs about a kernel, in the form that ``_native`` accepts.

    ``parameters``: for each parameter its name, its :class:`Direction` and its declared
    :class:`DataType`, or -1. At least ``required`` arguments must be passed. If ``takes_more`` is
    true, more arguments with the direction ``rest`` may follow.
    """

    parameters: list[tuple[str, int, int]]
    required: int
    takes_more: bool
    rest: int


def task_signature(
    function: Callable[..., Any] | None, signature: Sequence[Parameter] | None
) -> TaskSignature:
    """Return the declared signature of a kernel, or the signature in its annotations."""
    if signature is not None:
        listed = [
            _listed(f"number {i}", p.direction, type_code(p)) for i, p in enumerate(signature)
        ]
        # Published signatures of compiled kernels list tensors only. Scalars may follow.
        is_open = function is None and all(p.direction is not Direction.SCALAR for p in signature)
        more = Direction.SCALAR if is_open else Direction.UNSPECIFIED
        return TaskSignature(listed, len(listed), is_open, int(more))
    if function is None:
        return TaskSignature([], 0, True, int(Direction.UNSPECIFIED))
    annotations = _annotations(function)
    positional = _positional(function)
    rest = next((p for p in _parameters(function) if p.kind is p.VAR_POSITIONAL), None)
    for one in _parameters(function):
        _refuse_inner(function, one.name, annotations.get(one.name))
        is_keyword = one.kind in (one.KEYWORD_ONLY, one.VAR_KEYWORD)
        if is_keyword and _declared(annotations.get(one.name))[0] in WRITTEN:
            raise UsageError(
                f"parameter {one.name} of {_name(function)} is passed by keyword only, so it "
                "cannot be Out or InOut; put it before the *",
                name=one.name,
            )
    return TaskSignature(
        [_listed(p.name, *_declared(annotations.get(p.name))) for p in positional],
        sum(p.default is p.empty for p in positional),
        rest is not None,
        int(_declared(annotations.get(rest.name))[0] if rest else Direction.UNSPECIFIED),
    )


def type_code(parameter: Parameter) -> int:
    """Return the data type of a parameter; -1 if none is declared."""
    return -1 if parameter.dtype is None else int(parameter.dtype)


def _listed(name: str, direction: Direction, code: int) -> tuple[str, int, int]:
    return name, int(direction), code


def parameter_names(function: Callable[..., Any], skip: int) -> tuple[list[str], int, int]:
    """Return the names of the positional parameters after the first ``skip``, and two limits.

    The limits are the smallest and the largest number of arguments after ``skip``; a largest number
    of -1 means no limit.
    """
    parameters = _positional(function)
    if len(parameters) < skip and not _is_variadic(function):
        raise UsageError(
            f"orchestration {_name(function)!r} has no parameters; "
            "its first parameter must be rt, the graph that it builds"
        )
    required = sum(parameter.default is parameter.empty for parameter in parameters)
    most = -1 if _is_variadic(function) else len(parameters) - skip
    return [parameter.name for parameter in parameters[skip:]], max(required - skip, 0), most


def _name(function: Callable[..., Any]) -> str:
    return str(getattr(function, "__name__", function))


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        raise UsageError(
            f"the parameters of {shown(function)} are not known; pass a Python function",
            name="function",
            value=function,
        ) from None


def _positional(function: Callable[..., Any]) -> list[inspect.Parameter]:
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [parameter for parameter in _parameters(function) if parameter.kind in kinds]


def _is_variadic(function: Callable[..., Any]) -> bool:
    return any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in _parameters(function))


def _annotations(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the annotations, evaluated; one whose names do not exist at run time stays text."""
    source = inspect.unwrap(function)
    while isinstance(source, functools.partial):
        source = inspect.unwrap(source.func)
    found = inspect.get_annotations(source)
    globals_ = {**_ANNOTATION_NAMES, **getattr(source, "__globals__", {})}
    return {name: _evaluated(annotation, globals_) for name, annotation in found.items()}


def _evaluated(annotation: Any, globals_: dict[str, Any]) -> Any:
    if not isinstance(annotation, str):
        return annotation
    try:
        return eval(annotation, globals_)
    except UsageError:
        raise
    except Exception:  # noqa: BLE001 - some names may exist for type checkers only
        return annotation


def _declared(annotation: Any) -> tuple[Direction, int]:
    if typing.get_origin(annotation) is typing.Annotated:
        found = [_declared(extra) for extra in typing.get_args(annotation)[1:]]
        declared = (one for one in found if one[0] is not Direction.UNSPECIFIED)
        return next(declared, (Direction.UNSPECIFIED, -1))
    if isinstance(annotation, str):
        last = annotation.partition("(")[0].rpartition(".")[2].strip()
        known = {kind.__name__: kind.direction for kind in _BY_WORD.values()}
        return known.get(last, Direction.UNSPECIFIED), -1
    if isinstance(annotation, Parameter):
        return annotation.direction, type_code(annotation)
    if isinstance(annotation, type) and issubclass(annotation, Parameter):
        return annotation.direction, -1
    return Direction.UNSPECIFIED, -1


def _refuse_inner(function: Callable[..., Any], name: str, annotation: Any) -> None:
    """Raise UsageError for an annotation such as ``Optional[In]``."""
    if typing.get_origin(annotation) is typing.Annotated:
        return
    for inner in typing.get_args(annotation):
        if not isinstance(inner, str) and _declared(inner)[0] is not Direction.UNSPECIFIED:
            written = str(annotation).replace(f"{In.__module__}.", "").replace("typing.", "")
            raise UsageError(
                f"parameter {name} of {_name(function)} has the annotation {written}; write In, "
                "Out, InOut or Scalar alone: the argument is always one array or one number",
                name=name,
                value=annotation,
            )


def _parameter(entry: SignatureEntry) -> Parameter:
    if isinstance(entry, Parameter):
        return entry
    if isinstance(entry, type) and issubclass(entry, Parameter):
        return entry(None)
    name = entry.name.lower() if isinstance(entry, Direction) else entry
    kind = _BY_WORD.get(name.lower()) if isinstance(name, str) else None
    if kind is None:
        raise UsageError(
            f"{shown(entry)} in a signature is not a direction; use 'in', 'out', 'inout' or "
            "'scalar' (of a kernel also 'out_existing' or 'no_dep')",
            name="signature",
            value=entry,
            expected="in, out, inout or scalar",
        )
    return kind(None)
