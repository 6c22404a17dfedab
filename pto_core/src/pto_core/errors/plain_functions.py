"""Refuse functions of users whose call does not run their body exactly once.

The call of an async function or a generator function returns an object that runs the body later,
and no caller in this project does so. A function that forks returns twice.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncGenerator, Coroutine, Generator
from typing import Any

from pto_core.errors import UsageError

_KINDS = {
    "an async": inspect.iscoroutinefunction,
    "an async generator": inspect.isasyncgenfunction,
    "a generator": inspect.isgeneratorfunction,
}

_VALUES = frozenset({type(None), bool, int, float, str, bytes, tuple, list, dict, set})
"""Frequent types of results, because the test for a body that did not run takes time."""


def require_plain(kind: str, function: Any) -> None:
    """Raise UsageError if ``function`` is async or a generator; ``kind`` names its role.

    Calls are followed through :class:`functools.partial` and ``__call__``. For a function whose
    kind only its result shows, call :func:`require_executed` with the result.
    """
    called = source_of(function)
    while isinstance(called, functools.partial | staticmethod):
        called = called.func if isinstance(called, functools.partial) else called.__func__
    name = _name(called)
    if not inspect.isroutine(called):
        called = getattr(type(called), "__call__", None)  # noqa: B004 - the method is needed
    for what, is_kind in _KINDS.items():
        if is_kind(called):
            raise UsageError(
                f"{kind} {name!r} is {what} function, so a call would not run its body; use a "
                "plain function",
                name=kind,
                value=function,
            )


def require_executed(kind: str, function: Any, returned: object) -> None:
    """Raise UsageError if ``returned``, the result of a call, is a body that did not run.

    ``function``: the function that was called, or its name.
    """
    if type(returned) in _VALUES or not isinstance(
        returned, Coroutine | Generator | AsyncGenerator
    ):
        return
    if not isinstance(returned, AsyncGenerator):
        returned.close()  # otherwise the interpreter warns that it was never awaited
    require_plain(kind, function)
    raise UsageError(
        f"{kind} {_name(function)!r} returned an object of type {type(returned).__name__}, whose "
        "body did not run; use a plain function that does the work before it returns",
        name=kind,
        value=type(returned).__name__,
    )


def refuse_copy(kind: str, function: Any) -> None:
    """Raise UsageError for a function, or its name, that has returned in a forked process too."""
    raise UsageError(
        f"{kind} {_name(function)!r} called fork(), and the new process returned from it too; the "
        "new process was ended. Let it end inside the function, with os._exit(), or use "
        "subprocess or multiprocessing",
        name=kind,
    )


def source_of(function: Any) -> Any:
    """Return the Python function that numba compiles; any other object itself."""
    return getattr(function, "py_func", function)


def _name(function: Any) -> Any:
    return getattr(function, "__name__", function)
