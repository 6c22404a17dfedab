"""The error for a value that cannot be pickled, which names the innermost part that cannot."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from types import FunctionType, MethodType
from typing import TypeAlias

from pto_core.errors import UsageError
from pto_core.errors.values import shown
from pto_core.worker.serialisation import loaded_globals

Parts: TypeAlias = Iterable[tuple[str, object]]

_DEPTH_MAX = 20
_MEMBERS = ("__self__", "__func__", "func", "args", "keywords")


def unpicklable(parts: Parts, error: Exception, dump: Callable[[object], object]) -> UsageError:
    """Return the error for a value that :func:`dump` could not pickle.

    ``parts``: the arguments, and how to name each of them.
    """
    path, found = culprit(parts, dump)
    return UsageError(
        f"{path} is {shown(found)} of type {type(found).__name__}, which cannot be pickled: "
        f"{_start_of(error)}; pass what it is made from, and make it in the task",
        name=path,
        value=type(found).__name__,
    )


def _start_of(error: Exception) -> str:
    """Return the first line of the message of an error."""
    lines = str(error).splitlines() or [type(error).__name__]
    return lines[0]


def culprit(parts: Parts, dump: Callable[[object], object]) -> tuple[str, object]:
    """Return the innermost part that cannot be pickled, and how to reach it.

    The path of a part begins with an argument, as in ``args[1].lock``, or with a variable of a
    function, as in ``model.lock of module.f``.
    """
    known = list(parts)
    path, value = known[0] if known else ("", None)  # if each part can be pickled alone
    prefix = owner = inner_owner = ""
    seen: set[int] = set()  # a function may refer to itself
    for _ in range(_DEPTH_MAX):
        new = (one for one in known if id(one[1]) not in seen)
        found = next((one for one in new if not _is_dumped(one[1], dump)), None)
        if found is None:
            break
        seen.add(id(found[1]))
        path, value, owner = prefix + found[0], found[1], inner_owner
        known, prefix = list(_parts(value)), path
        if isinstance(value, FunctionType):
            prefix, inner_owner = "", f" of {value.__module__}.{value.__qualname__}"
    return path + owner, value


def _is_dumped(part: object, dump: Callable[[object], object]) -> bool:
    try:
        dump(part)
    except Exception:  # noqa: BLE001 - this is the part that is searched for
        return False
    return True


def _parts(value: object) -> Parts:
    if isinstance(value, FunctionType):
        yield from _variables(value)
        return
    if isinstance(getattr(type(value), "__reduce__", None), FunctionType):
        return  # its class decides what is pickled
    if isinstance(value, Mapping):
        yield from ((f"[{shown(key)}]", part) for key, part in value.items())
    elif isinstance(value, set | frozenset):
        yield from ((f" (element {shown(part)})", part) for part in value)
    elif isinstance(value, list | tuple):
        yield from ((f"[{index}]", part) for index, part in enumerate(value))
    slots = [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())]
    members = _MEMBERS if isinstance(value, MethodType | functools.partial) else ()
    for name in (*members, *getattr(value, "__dict__", ()), *slots):
        if hasattr(value, name):
            yield f".{name}", getattr(value, name)


def _variables(function: FunctionType) -> Parts:
    """Return the global and closure variables of a function, and its default values.

    Functions are last, because they may refer to this one.
    """
    known = {name: function.__globals__.get(name) for name in loaded_globals(function.__code__)}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # the variable has no value yet
            known[name] = cell.cell_contents
    parameters = inspect.signature(function).parameters.values()
    found = [*known.items(), *((one.name, one.default) for one in parameters)]
    return sorted(found, key=lambda one: isinstance(one[1], FunctionType))
