"""Python functions as typed tasks, whose parameters state what the task reads and writes."""

from __future__ import annotations

import dis
import functools
import inspect
import pickle
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any, ClassVar, Generic, overload

import numpy as np

from pto_core._native import declared_number, number
from pto_core._worker import (
    ContinuousTensor,
    SharedBlock,
    TaskArgs,
    TensorArgType,
    is_private,
)
from pto_core.errors import UsageError
from pto_core.errors.plain_functions import require_executed, require_plain
from pto_core.errors.values import explain_names, shown, suggestion
from pto_core.kernels import ChipCallable
from pto_core.kernels.data_type import DataType
from pto_core.kernels.direction import WRITTEN, Direction, In, TaskSignature, task_signature
from pto_core.kernels.lost_results import checked
from pto_core.kernels.retries import NO_RETRIES, Retries, as_retries
from pto_core.kernels.typed import Outcome, Parameters, SubmitOptions, Value
from pto_core.worker.futures import TaskHandle
from pto_core.worker.parts import (
    PartArgument,
    TensorPart,
    extent_of,
    received,
    refuse_masked,
    region_of,
)
from pto_core.worker.retries import block_of, counted_attempt
from pto_core.worker.serialisation import import_path
from pto_core.worker.values import (
    SMALL_PICKLE_BYTES,
    Content,
    Received,
    Returned,
    ValueMemory,
    empty_slot,
    plain_pickle,
    store_result,
)

if TYPE_CHECKING:
    from pto_core._worker import TaskArgsView


TAGS = {Direction(tag.value): tag for tag in TensorArgType}


@dataclass(frozen=True)
class ChipTask:
    """A ChipCallable that a session can submit in the same way as a :class:`pto_core.Task`."""

    chip: ChipCallable

    @property
    def name(self) -> str:
        """The name of the ChipCallable."""
        return self.chip.name

    def arguments(self, values: Sequence[Any]) -> tuple[TaskArgs, tuple[Any, ...]]:
        """Return the arguments of a submit, and the arrays that the task writes.

        An array without a declared direction is read and written. A scalar is converted to its
        declared type. Raises UsageError for an array after a scalar, for a wrong number of
        arguments, for a number where an array is declared and the converse, and for a number that a
        Python orchestration would receive as another one, because no type is declared.
        """
        args, written, chip = TaskArgs(), [], self.chip
        values = _arrays_of(values, f"an argument of {chip.name}")
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
        text = f"{where}: {error}".replace(": the tensor ", " ", 1)
        is_array = isinstance(value, np.ndarray)
        is_part = is_array and not value.flags.c_contiguous and value.base is not None
        if is_part or type(value) is TensorPart:
            text += "; or pass the array of which it is a part, and take the part in the function"
        elif isinstance(value, list | tuple):
            text = text.replace("a NumPy array", "a NumPy array, such as np.array(values)")
        elif is_array and "read-only" in text:
            text = (
                f"{where} is a read-only array, and the task writes it; pass a writable array, or "
                "declare that the task only reads it"
            )
        raise UsageError(text, name=where, value=type(value).__name__) from None


_ADDRESS = re.compile(
    r"(?:tensor \d+ at address|the \d+ bytes at) (0x[0-9a-f]+)(?:, \d+ bytes, ([^;]+))?"
)
_OF_CHILD = re.compile(r"tensor \d+(?: of member (\d+))? \(\d+ bytes at (0x[0-9a-f]+)\)")


def of_argument(
    error: UsageError,
    target: Task[..., Any] | ChipTask | GraphTask,
    members: Sequence[Sequence[Any]],
    keywords: Mapping[str, Any],
) -> UsageError:
    """Return an error of a submit that names an argument in the place of an address.

    ``members``: the arguments of each member of the group, or of the only task.
    """
    named = _OF_CHILD.sub(functools.partial(_place_of, target, members, keywords), str(error))
    if named != str(error):
        return UsageError(named)
    found = _ADDRESS.match(str(error))
    for values in members if found is not None else ():
        assert found is not None
        for where, value in _named(target, values, keywords):
            if _address_of(value) != int(found[1], 16):
                continue
            fault = found[2] or "was made in a scope or session that has ended"
            return UsageError(
                f"{where} {fault}; pass an array that worker.shared_array(shape, dtype) of this "
                "Worker returned, or s.empty(shape, dtype) in this scope",
                name=where,
                value=value,
            )
    return error


def _place_of(
    target: Task[..., Any] | ChipTask | GraphTask,
    members: Sequence[Sequence[Any]],
    keywords: Mapping[str, Any],
    found: re.Match[str],
) -> str:
    """Return the name of the tensor in the memory of a child that a message contains."""
    member = int(found[1] or 0)
    for where, value in _named(target, members[member], keywords):
        if _address_of(value) == int(found[2], 16):
            return where if found[1] is None else f"{where}, in member {member},"
    return found[0]


def _named(
    target: Task[..., Any] | ChipTask | GraphTask,
    values: Sequence[Any],
    keywords: Mapping[str, Any],
) -> Iterable[tuple[str, Any]]:
    """Return a text for each argument, and the argument."""
    if isinstance(target, Task):
        values = target.bound(values, keywords)[0]
        return zip((where for where, *_ in target.listed(len(values))), values, strict=True)
    return ((f"argument {i} of {target.name}", value) for i, value in enumerate(values))


def _address_of(value: Any) -> int | None:
    try:
        return ContinuousTensor.from_array(value).address
    except UsageError:
        return None


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


# The kinds of the arguments of a task. _VALUES to _RETRIES are tensors that follow those of the
# arguments: the block with all values, the slots and arrays of the handles in them, the slot of the
# task, and its block with the number of its attempts. If a tensor contains a part, scalars of the
# kind _AXIS precede it, which are the axes of the part. Small values without any of these tensors
# are the scalars of kind _PICKLED, eight bytes in each, which follow the other scalars.
_TENSOR, _READ_ONLY, _INT, _FLOAT, _BOOL, _UNSIGNED = range(6)
_VALUES, _INPUT, _SLOT, _RETRIES, _AXIS, _PICKLED = range(6, 12)
_KINDS = {int: _INT, float: _FLOAT, bool: _BOOL}
_UNKNOWN = Direction.UNSPECIFIED
_TYPES = {_INT: DataType.INT64, _FLOAT: DataType.FLOAT64, _BOOL: DataType.BOOL}


_READ_ONLY_TEXTS = ("destination is read-only", "array is read-only")  # of NumPy
_READ_ONLY_ARRAYS = (
    "arrays of In parameters, and arrays inside of objects, are read-only: annotate the parameter "
    "InOut to write into the array, or write into a copy, x.copy()"
)


def _name_of(function: object) -> str:
    while isinstance(function, functools.partial):
        function = function.func
    return str(getattr(function, "__qualname__", function))


def unbound(
    function: Any, args: tuple[Any, ...] = (), keywords: Mapping[str, Any] | None = None
) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """Return the task of a bound method or ``functools.partial``, and all arguments of its call.

    Return any other function itself.
    """
    target: Any = function
    given, named = args, dict(keywords or {})
    while isinstance(target, functools.partial | MethodType):
        if isinstance(target, MethodType):
            target, given = target.__func__, (target.__self__, *given)
        else:
            given, named = (*target.args, *given), {**target.keywords, **named}
            target = target.func
    if isinstance(target, Task):
        return target, given, named
    return function, args, dict(keywords or {})


# Frequent types that are neither numbers nor arrays.
_OBJECTS = frozenset({str, bytes, dict, list, tuple, set, type(None)})


class Task(Generic[Parameters, Value, Outcome]):
    """A Python function that runs in a SUB child; created by :func:`task`.

    A call runs the function in this process.
    """

    calls_argument = False
    """Whether the function calls its first argument, whose name then stands in messages."""
    is_of_worker = True
    """``device.run`` and ChipCallable read this, to explain that a Worker runs the task."""

    if TYPE_CHECKING:

        @property
        def outcome(self) -> type[Outcome]:
            """The type of ``handle.result()``; see TypedTask."""

    def __init__(
        self, function: Callable[Parameters, Value], *, retries: int | Retries = 0
    ) -> None:
        if not callable(function):
            raise UsageError(
                f"{shown(function)} is not a function; put @task before a def", name="task"
            )
        require_plain("task function", function)
        self.retry_policy = as_retries(retries)
        self.function: Callable[..., Any] = function
        known = _signature(function)
        self.signature: TaskSignature = task_signature(function if known else None, None)
        self._checked = checked(function, self.signature)
        self._returns = _may_return_value(function)
        names = set(known.parameters) if known else set()
        self.shadowed = names & SubmitOptions.__annotations__.keys()
        # by number of arguments
        self._directions: dict[int, list[tuple[str, Direction, int]]] = {}
        functools.update_wrapper(self, function, updated=())
        self.name = _name_of(function)
        self._needs_keywords = known is not None and any(
            one.kind is one.KEYWORD_ONLY and one.default is one.empty
            for one in known.parameters.values()
        )

    @property
    def retries(self) -> int:
        """How often the task may run again."""
        return self.retry_policy.count

    @property
    def is_task_per_call(self) -> bool:
        """Whether several calls cannot share a task: it may run again, or writes into arrays."""
        ways = {way for _, way, _ in self.signature.parameters} | {self.signature.rest}
        return self.retries > 0 or not WRITTEN.isdisjoint(ways)

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        """Bind a task that is a method to an object, as a function does."""
        return self if instance is None else MethodType(self, instance)

    def __call__(self, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Value:
        """Call the function in this process and return its value."""
        returned: Value = self._checked(*args, **kwargs)
        require_executed("task function", self.name, returned)
        return returned

    def __repr__(self) -> str:
        return f"<Task {self.name!r}>"

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickle by name, as a function does; cloudpickle pickles by code."""
        is_by_code = "cloudpickle" in sys._getframe(1).f_globals.get("__name__", "")
        if is_by_code or import_path(self) is None:
            return super().__reduce_ex__(protocol)
        return self.name

    def arguments(
        self,
        values: Sequence[Any],
        memory: ValueMemory | None = None,
        keywords: Mapping[str, Any] | None = None,
        retries: Retries = NO_RETRIES,
        producers: list[TaskHandle] | None = None,
    ) -> tuple[TaskArgs | None, tuple[Any, ...] | Returned, list[Any]]:
        """Return the arguments of a submit, or None, and what the handle of the task needs.

        The third object is the blocks of values to keep until the task has ended. ``memory``: None
        if the Worker has no SUB child. Handles without a result are added to ``producers``.
        """
        passed: dict[str, Any] = {}
        if keywords or self._needs_keywords:
            values, passed = self.bound(values, keywords or {})
        directions = self._directions.get(len(values))
        if directions is None:
            directions = self.listed(len(values))
        layout: list[int] = []
        scalars: list[float] = []
        views: list[Any] = []
        written, places, given = [], [], []  # places, given: arguments that travel as values
        args, pickled = TaskArgs(), b""
        is_plain = not passed  # whether there are no keywords and no handles
        for place, value in enumerate(values):
            where, direction, code = directions[place]
            kind = type(value)
            if kind is TaskHandle:
                value = _array_of(value, where, direction)
                if direction not in TAGS or type(value) is TaskHandle:
                    places.append(place)
                    given.append(value)
                    is_plain = False
                    continue
            if direction is _UNKNOWN and (kind in _OBJECTS or _is_object(value, where)):
                places.append(place)
                given.append(value)
            elif direction in TAGS:
                scalars += _add_visible(args, layout, value, (where, direction), memory, retries)
                if direction in WRITTEN:
                    written.append(value)
            else:
                way, scalar = _scalar(where, value, code)
                layout.append(way)
                scalars.append(scalar)
        if places or passed:
            found = self.needed(memory), producers
            sent = places, given, passed
            pickled, views = self._add_values(args, (layout, scalars), sent, found, is_plain)
        outputs: tuple[Any, ...] | Returned = tuple(written)
        if self._returns:
            outputs = Returned(memory or self.needed(memory), tuple(written))
            args.add_tensor(outputs.tensor(), TensorArgType.OUTPUT)
            layout.append(_SLOT)
        if retries.count:
            views += self._add_retries(args, layout, retries, self.needed(memory))
        if layout or pickled:
            _add_scalars(args, layout, scalars, pickled)
        return (args if layout else None), outputs, views

    def needed(self, memory: ValueMemory | None) -> ValueMemory:
        """Return ``memory``; raise UsageError if it is None."""
        if memory is None:
            subject = "map or an executor" if self.calls_argument else f"the @task {self.name}"
            raise UsageError(
                f"{subject} needs a process, a SUB child, and this Worker has none; create it with "
                "num_sub_workers=1 or more",
                name=self.name,
            )
        return memory

    def _add_values(
        self,
        args: TaskArgs,
        lists: tuple[list[int], list[float]],
        values: tuple[list[int], list[Any], dict[str, Any]],
        found: tuple[ValueMemory, list[TaskHandle] | None],
        is_plain: bool,
    ) -> tuple[bytes, list[Any]]:
        """Return the pickle of the values if it is small; else add tensors.

        ``lists``: the kinds of the arguments, and their scalars. ``values``: the places of the
        values, the values, and those that are passed by keyword. The second object is a list of the
        blocks to keep.
        """
        layout, scalars = lists
        places, given, passed = values
        # the child inserts no value if all arguments are values
        sent = given if is_plain and not layout else values
        plain = plain_pickle(sent) if is_plain else None
        if plain and not plain[1] and len(plain[0]) <= SMALL_PICKLE_BYTES:
            return plain[0], []
        memory, producers = found

        def name(place: int) -> str:
            listed = self.signature.parameters
            return listed[place][0] if place < len(listed) else f"args[{place}]"

        def parts() -> list[tuple[str, Any]]:
            return [*zip(map(name, places), given, strict=True), *passed.items()]

        content = Content(sent, parts, memory, plain)
        if content.small:
            return content.small, []
        view = memory.stored(content)
        args.add_tensor(memory.tensor_of(view), TensorArgType.INPUT)
        layout.append(_VALUES)
        for tensor in content.inputs:
            region = _region_of(tensor)
            if region is None:
                args.add_tensor(tensor, TensorArgType.INPUT)
            else:
                scalars += _add_region(args, layout, region, ("", Direction.IN), NO_RETRIES)
            layout.append(_INPUT)
        if producers is not None:
            producers += content.producers
        return b"", [view, *content.results]

    def _add_retries(
        self, args: TaskArgs, layout: list[int], retries: Retries, memory: ValueMemory
    ) -> list[Any]:
        """Add the block with the number of attempts; return it, to keep it."""
        view = block_of(retries, memory)
        args.add_tensor(memory.tensor_of(view), TensorArgType.INPUT)
        layout.append(_RETRIES)
        return [view]

    def bound(
        self, values: Sequence[Any], keywords: Mapping[str, Any]
    ) -> tuple[Sequence[Any], dict[str, Any]]:
        """Return the arguments by position, and those that the function takes by keyword only."""
        signature = _signature(self.function)
        if signature is None:
            return values, dict(keywords)
        try:
            bound = signature.bind(*values, **keywords)
        except TypeError as error:
            text = str(signature).replace(f"{In.__module__}.", "")
            text = re.sub(r"(: |-> )'([^']*)'", r"\1\2", text)  # annotations that are texts
            known = {*signature.parameters, *SubmitOptions.__annotations__}
            hints = [suggestion(name, known) for name in keywords if name not in known]
            raise UsageError(
                f"task function {self.name}: {error}{next(filter(None, hints), '')}; it is "
                f"{self.name}{text}, and the options of submit are "
                f"{', '.join(SubmitOptions.__annotations__)}",
                name=self.name,
            ) from None
        by_position = [name for name, *_ in self.signature.parameters]
        last = max((i for i, name in enumerate(by_position) if name in bound.arguments), default=-1)
        for name in by_position[: last + 1]:
            bound.arguments.setdefault(name, signature.parameters[name].default)
        return bound.args, bound.kwargs

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
        inputs: list[Any] = []
        block, slot, retried = None, None, None
        axes: list[int] = []
        tensors, scalars = 0, 0
        kinds = args.kinds() if args.has_kinds else b""
        pickled = kinds.count(_PICKLED)
        for way in kinds[: len(kinds) - pickled]:
            if way == _AXIS:
                axes.append(int(args.scalar(scalars, DataType.INT64)))
                scalars += 1
                continue
            if _INT <= way <= _UNSIGNED:
                values.append(args.scalar(scalars, _TYPES.get(way)))
                scalars += 1
                continue
            array = args.tensor(tensors)
            tensors += 1
            if way == _SLOT:
                slot = array.data
                continue
            if way == _RETRIES:
                retried = array
                continue
            array.flags.writeable = way == _TENSOR
            if axes:
                array, axes = received(array, axes), []
            if way == _VALUES:
                block = array
            else:
                (inputs if way == _INPUT else values).append(array)
        small = args.content(scalars, pickled) if pickled else b""
        if retried is None:
            self._receive(values, inputs, block, slot, small)
            return
        with counted_attempt(retried):
            self._receive(values, inputs, block, slot, small)

    def _receive(
        self, values: list[Any], inputs: list[Any], block: Any, slot: Any, small: bytes
    ) -> None:
        """Call the function with the arrays and numbers, and with the objects of the block."""
        if slot is not None:
            empty_slot(slot)
        if block is None:
            keywords = self._inserted(values, pickle.loads(small)) if small else {}
            self._call(values, keywords, slot, self._called(values))
            return
        received = Received(block, inputs)
        keywords = self._inserted(values, received.take())
        name = self._called(values)
        try:
            self._call(values, keywords, slot, name)
        except BaseException as error:
            traceback.clear_frames(error.__traceback__)  # they refer to the arguments
            values.clear()
            keywords.clear()
            if kept := received.kept(name):
                error.add_note(kept)
            raise
        values.clear()
        keywords.clear()
        if kept := received.kept(name):
            if slot is not None:
                empty_slot(slot)
            raise UsageError(kept, name=name)

    def _called(self, values: list[Any]) -> str:
        """Return the name of the function in messages."""
        return _name_of(values[0]) if self.calls_argument else self.name

    def _call(self, values: list[Any], keywords: dict[str, Any], slot: Any, name: str) -> None:
        """Call the function, and store what it returns. ``name``: its name in messages."""
        try:
            result = self._checked(*values, **keywords)
        except ValueError as error:
            if str(error).endswith(_READ_ONLY_TEXTS):
                error.add_note(_READ_ONLY_ARRAYS)
            raise
        require_executed("task function", name, result)
        if slot is not None:
            store_result(slot, result, name)
        elif result is not None:
            raise UsageError(
                f"task function {self.name} returned a value of type {type(result).__name__}, "
                "although its code seemed to return None; return the value in another way",
                name=self.name,
            )

    def _inserted(self, values: list[Any], content: Any) -> dict[str, Any]:
        """Insert objects at their places among the arrays and numbers; return those by keyword."""
        if type(content) is list:
            values += content
            return {}
        places, given, keywords = content
        listed = self.signature.parameters
        for place, value in zip(places, given, strict=True):
            name, direction, code = listed[place] if place < len(listed) else ("", -1, -1)
            where = f"argument {name} of task function {self.name}"
            if direction == Direction.SCALAR:  # the result of another task
                value = declared_number(value, code, where)[1]
            elif direction in TAGS and type(value) in _OBJECTS:
                raise UsageError(
                    f"{where} must be an array, and the task whose handle was passed returned "
                    f"{shown(value)}; return an array from that task, or remove the annotation",
                    name=name,
                    value=value,
                )
            values.insert(place, value)
        passed: dict[str, Any] = keywords
        return passed

    def listed(self, count: int) -> list[tuple[str, Direction, int]]:
        """Return text, direction and declared type of each of ``count`` arguments."""
        listed, required, takes_more, rest = self.signature
        if not required <= count <= (count if takes_more else len(listed)):
            most = "or more" if takes_more else f"to {len(listed)}"
            expected = str(required) if required == len(listed) else f"{required} {most}"
            names = ", ".join(name for name, _, _ in listed)
            plural = "" if expected == "1" else "s"
            raise UsageError(
                f"task function {self.name} takes {expected} argument{plural} ({names}), "
                f"got {count}",
                name=self.name,
                value=count,
                expected=expected,
            )
        of_task = f"of task function {self.name}"
        found = [
            (f"argument {name} {of_task}", Direction(way), code)
            for name, way, code in listed[:count]
        ]
        found += [
            (f"argument number {place} {of_task}", Direction(rest), -1)
            for place in range(len(listed), count)
        ]
        self._directions[count] = found
        return found


_SUBMIT = "worker.submit({name}, ...)"
_INSTEAD = {
    **dict.fromkeys(("remote", "submit", "delay", "apply_async"), _SUBMIT),
    "map": "worker.map({name}, ...)",
    "options": "worker.options(...).submit({name}, ...)",
}
explain_names(Task, _INSTEAD)


def _add_scalars(args: TaskArgs, layout: list[int], scalars: list[float], pickled: bytes) -> None:
    """Add the scalars, the pickle of small values, and the kinds of all arguments."""
    for scalar in scalars:
        args.add_scalar(scalar)
    if pickled:
        layout += [_PICKLED] * args.add_bytes(pickled)
    args.add_kinds(bytes(layout))


@dataclass(frozen=True)
class TaskDecorator:
    """The decorator that converts a function to a task."""

    retries: int | Retries

    @overload
    def __call__(self, function: Callable[Parameters, None]) -> Task[Parameters, None]: ...

    @overload
    def __call__(self, function: Callable[Parameters, Value]) -> Task[Parameters, Value, Value]: ...

    def __call__(self, function: Callable[..., Any]) -> Task[..., Any]:
        """Return the task; raises UsageError."""
        return Task(function, retries=self.retries)


# The result of a task whose function returns None is the arrays that it writes.
@overload
def task(
    function: Callable[Parameters, None], *, retries: int | Retries = 0
) -> Task[Parameters, None]: ...


@overload
def task(
    function: Callable[Parameters, Value], *, retries: int | Retries = 0
) -> Task[Parameters, Value, Value]: ...


@overload
def task(function: None = None, *, retries: int | Retries = 0) -> TaskDecorator: ...


def task(
    function: Callable[..., Any] | None = None, *, retries: int | Retries = 0
) -> Task[..., Any] | TaskDecorator:
    """Convert a Python function to a task that can be submitted in a session.

    A child calls the function. The annotations of the parameters state how it uses arrays and
    numbers, as in a kernel::

        @task
        def scale(x: In, factor: Scalar, out: Out):
            np.multiply(x, factor, out=out)

        @task
        def count(text, *, least=1):
            words = collections.Counter(text.split())
            return {word: number for word, number in words.items() if number >= least}

    For an array it receives a NumPy view. The argument of a parameter without annotation is a
    number or any object that can be pickled, and the function receives a copy of the object; the
    arrays in it are read-only, and must not be kept after the return. What the function returns is
    the ``result()`` of the task's handle, also a copy. A handle as an argument is the result that
    it will have. The function fails with a UsageError if it assigns a new array to the name of an
    Out or InOut parameter.

    ``retries``: how often the task may run again after it failed or its child died; a value above 0
    declares that repeating it is safe. Before a repetition, arrays that it changes in place are
    restored. A :class:`pto_core.Retries` also states the exceptions after which it runs again, and
    a wait.
    """
    if function is None:
        return TaskDecorator(retries)
    return Task(function, retries=retries)


def _scalar(where: str, value: Any, code: int) -> tuple[int, float]:
    """Return the kind of a scalar, and the number or its 64 bits; a float is sent as a double."""
    if code < 0 and type(value) in _KINDS and -(2**63) <= value < 2**63:
        return _KINDS[type(value)], value
    bits, converted = declared_number(value, code, where)
    if isinstance(converted, float):
        return _FLOAT, declared_number(converted, DataType.FLOAT64, where)[0]
    if isinstance(converted, bool):
        return _BOOL, bits
    return (_INT if converted < 2**63 else _UNSIGNED), bits


def _is_object(value: Any, where: str) -> bool:
    """Return whether the argument of a parameter without annotation is an object, not a number.

    Raises UsageError for memory of a Worker, because the use of it is not known.
    """
    if type(value) in (int, float, bool):
        return type(value) is int and not -(2**63) <= value < 2**64
    owner = value
    while isinstance(owner, np.ndarray):
        owner = owner.base
    if isinstance(owner, SharedBlock | ContinuousTensor | TensorPart):
        raise UsageError(
            f"{where} is an array of the Worker, and its direction is unknown: annotate the "
            "parameter In, Out or InOut",
            name=where,
            value=type(value).__name__,
            expected="In, Out or InOut",
        )
    return True


def _array_of(handle: TaskHandle, where: str, direction: Direction) -> Any:
    """Return the array that the task of a handle writes; the handle itself if it is a value."""
    outputs = handle.outputs
    if direction not in TAGS:
        return handle
    if isinstance(outputs, Returned):
        if direction is Direction.IN:
            return handle
        outputs = outputs.written
    if not outputs or len(outputs) != 1:
        raise UsageError(
            f"{where} must be an array, and {handle!r} is a task that writes "
            f"{len(outputs or ())} arrays; pass the array that the task will use",
            name=where,
            value=handle,
        )
    return outputs[0]


def _arrays_of(values: Sequence[Any], where: str) -> Sequence[Any]:
    """Replace each handle by the array that its task writes. Raises UsageError."""
    if TaskHandle not in map(type, values):
        return values
    return [
        _array_of(one, where, Direction.INOUT) if type(one) is TaskHandle else one for one in values
    ]


def _visible(value: Any, where: str, direction: Direction, memory: ValueMemory) -> Any:
    """Return an array, its PartArgument, or a copy of a private array that is only read.

    Raises UsageError for a private array that the task would write.
    """
    owner = value.base
    if type(owner) is SharedBlock:
        return value
    whole = value
    while isinstance(owner, np.ndarray):
        whole, owner = owner, owner.base
    if type(owner) is SharedBlock:
        row = whole.strides[0] if whole.ndim else 1
        # Only the PartArgument of a part of a row is exact, also if the part is contiguous.
        is_tensor = value.flags.c_contiguous and value.nbytes % row == 0
        return value if is_tensor else region_of(value)
    if not value.nbytes or value.dtype.hasobject:
        return value
    if not is_private(*extent_of(value)):
        return _region_of(value) or value
    if direction is Direction.IN:
        return memory.copied(value)
    if direction in WRITTEN:
        raise UsageError(
            f"{where} is an array of this process only, so that a child cannot write to it; make "
            "it with Worker.shared_array(shape, dtype), or return the array from the function",
            name=where,
            value=type(value).__name__,
        )
    return value


def _add_visible(
    args: TaskArgs,
    layout: list[int],
    value: Any,
    parameter: tuple[str, Direction],
    memory: ValueMemory | None,
    retries: Retries,
) -> tuple[int, ...]:
    """Add an array and its kind; return the axes if it is a part. Raises UsageError."""
    where, direction = parameter
    given = value.region() if type(value) is TensorPart else value
    axes: tuple[int, ...] = ()
    if isinstance(value, np.ndarray) and memory is not None:
        if type(value) is not np.ndarray:
            refuse_masked(value, where)
        given = _visible(value, where, direction, memory)
    if type(given) is PartArgument:
        axes = _add_region(args, layout, given, parameter, retries)
    else:
        add_array(args, given, TAGS[direction], where)
    layout.append(_READ_ONLY if direction is Direction.IN else _TENSOR)
    return axes


def _region_of(value: Any) -> PartArgument | None:
    """Return a PartArgument for a part of an array or tensor that is not contiguous."""
    if isinstance(value, np.ndarray) and not value.flags.c_contiguous:
        return region_of(value)
    return value.region() if type(value) is TensorPart else None


def _add_region(
    args: TaskArgs,
    layout: list[int],
    region: PartArgument,
    parameter: tuple[str, Direction],
    retries: Retries,
) -> tuple[int, ...]:
    """Add the tensor of a part, and the kinds of its axes; return the axes.

    A writer replaces earlier writers of its region, so a writer of a region that is not exact must
    wait for them like a reader. Raises UsageError.
    """
    where, direction = parameter
    tag = TAGS[direction]
    if direction in WRITTEN and not region.is_exact:
        tag = TensorArgType.INOUT
        if retries.count:
            raise UsageError(
                f"{where} is a part with steps, such as x[::2], or of another shape than its "
                "array, and the task may run again; its content can be restored only if all steps "
                "are 1: pass such a part, or no retries",
                name=where,
                value=retries.count,
            )
    add_array(args, region.tensor, tag, where)
    layout += [_AXIS] * len(region.axes)
    return region.axes


def _signature(function: Callable[..., Any]) -> inspect.Signature | None:
    """Return the signature of a function; None for a builtin function without one."""
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        return None


def _may_return_value(function: Callable[..., Any]) -> bool:
    """Return False for a Python function whose returns all return None."""
    if not isinstance(function, FunctionType):
        return True
    previous = None
    for instruction in dis.get_instructions(function.__code__):
        if instruction.opname == "RETURN_CONST" and instruction.argval is not None:
            return True
        if instruction.opname == "RETURN_VALUE" and (
            instruction.is_jump_target  # as in `return x or None`
            or previous is None
            or previous.opname != "LOAD_CONST"
            or previous.argval is not None
        ):
            return True
        previous = instruction
    return False


class ChildTensor:
    """A tensor in memory of a child. ``args_class``: the class of arguments that accept it."""

    args_class: ClassVar[type[TaskArgs]]


@dataclass(frozen=True)
class GraphTask:
    """A graph function that a session can submit in the same way as a :class:`pto_core.Task`.

    Its parameters have no directions, so each array is read and written.
    """

    name: str

    def arguments(self, values: Sequence[Any]) -> tuple[TaskArgs | None, tuple[Any, ...]]:
        """Return the arguments of a submit, or None, and the arrays that the task writes.

        The function receives the arrays as ``args.tensor(0)`` and so on, and the integers as
        ``args.scalar(0)`` and so on; one that may be negative is ``args.scalar(0, int)``. A
        TaskArgs must be the only value; it states the use of each
        array. Raises UsageError for a number that is not an integer.
        """
        if len(values) == 1 and isinstance(values[0], TaskArgs):
            return values[0], ()
        values = _arrays_of(values, f"an argument of the graph function {self.name}")
        classes = (value.args_class for value in values if isinstance(value, ChildTensor))
        args, written = next(classes, TaskArgs)(), []
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
