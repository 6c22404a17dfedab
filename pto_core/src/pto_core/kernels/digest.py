"""Digests of callables: 32 bytes that identify the code and data that determine behaviour."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable
from pathlib import Path
from types import CodeType
from typing import Any
from weakref import ref

_PLAIN = (int, float, complex, str, bytes, type(None))
_numbers = itertools.count()
# The weak references have no callback. A callback would run during the destruction of a callable,
# and if a signal handler raised an exception there, the exception would be lost. Instead, dead
# references are removed when more than `_forget_limit` exist.
_registrations: dict[ref[Callable[..., Any]], int] = {}
_forget_limit = 64


def digest_of(*parts: str | bytes) -> bytes:
    """Hash texts and byte strings with their lengths: ("ab", "c") differs from ("a", "bc")."""
    hashed = hashlib.sha256()
    for part in parts:
        content = part.encode() if isinstance(part, str) else part
        hashed.update(len(content).to_bytes(8, "little"))
        hashed.update(content)
    return hashed.digest()


def file_digest(path: Path) -> bytes:
    """Hash the content of a file. Raises OSError."""
    with path.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").digest()


def function_digest(function: Callable[..., Any]) -> bytes:
    """Hash a function: its name, its code, and its default values if their types are simple.

    If a function has more state (a closure, other default values, a callable object), a
    registration number is hashed too. So two closures of the same code have different digests, in
    this process and in its forks.
    """
    code = getattr(function, "__code__", None)
    name = f"{getattr(function, '__module__', '')}:{getattr(function, '__qualname__', '')}"
    defaults = getattr(function, "__defaults__", None) or ()
    is_plain = (
        code is not None
        and not getattr(function, "__closure__", None)
        and not getattr(function, "__kwdefaults__", None)
        and all(isinstance(value, _PLAIN) for value in defaults)
    )
    state = repr(defaults) if is_plain else f"registration {_registration(function)}"
    return digest_of("function", name, state, code_digest(code) if code else b"")


def _registration(function: Callable[..., Any]) -> int:
    """Return a number that is unique to the callable in this process."""
    if len(_registrations) >= _forget_limit:
        _forget_gone()
    try:
        return _registrations.setdefault(ref(function), next(_numbers))
    except TypeError:  # the object is not hashable, or has no weak references
        return next(_numbers)


def _forget_gone() -> None:
    global _forget_limit
    for known in list(_registrations):
        if known() is None:
            _registrations.pop(known, None)
    _forget_limit = max(_forget_limit, 2 * len(_registrations))


def code_digest(code: CodeType) -> bytes:
    """Hash the instructions, names and constants of a function, but not its line numbers."""
    constants = (
        code_digest(one) if isinstance(one, CodeType) else _constant(one).encode()
        for one in code.co_consts
    )
    return digest_of(code.co_code, *code.co_names, "constants", *constants)


def _constant(value: object) -> str:
    """Return a text for a constant; it does not depend on the iteration order of a set."""
    return repr(sorted(map(repr, value))) if isinstance(value, frozenset) else repr(value)
