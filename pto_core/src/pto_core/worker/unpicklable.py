"""The error for a value that cannot be pickled, which names the innermost part that cannot."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

from pto_core.errors import UsageError
from pto_core.errors.values import shown

Parts: TypeAlias = Iterable[tuple[str, object]]

_DEPTH_MAX = 20


def unpicklable(parts: Parts, error: Exception, dump: Callable[[object], object]) -> UsageError:
    """Return the error for a value that :func:`dump` could not pickle.

    ``parts``: the arguments, and how to name each of them.
    """
    path, found = _culprit(parts, dump)
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


def _culprit(parts: Parts, dump: Callable[[object], object]) -> tuple[str, object]:
    """Return the innermost part that cannot be pickled, and how to reach it."""
    path, value = "", None
    for depth in range(_DEPTH_MAX):
        known = list(parts)
        if depth == 0 and known:
            path, value = known[0]  # if each part can be pickled alone
        for name, part in known:
            try:
                dump(part)
            except Exception:  # noqa: BLE001 - this is the part that is searched for
                path, value = name if depth == 0 else path + name, part
                break
        else:
            break
        parts = _parts(value)
    return path, value


def _parts(value: object) -> Parts:
    if isinstance(value, Mapping):
        yield from ((f"[{shown(key)}]", part) for key, part in value.items())
    elif isinstance(value, list | tuple | set | frozenset):
        yield from ((f"[{index}]", part) for index, part in enumerate(value))
    slots = [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())]
    for name in (*getattr(value, "__dict__", ()), *slots):
        if hasattr(value, name):
            yield f".{name}", getattr(value, name)
