"""Digests of callables: 32 bytes over everything that decides what they do."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable
from pathlib import Path
from types import CodeType
from typing import Any

_registrations = itertools.count()


def digest_of(*parts: str | bytes) -> bytes:
    """Hash texts and byte strings, each with its length so that they cannot run together."""
    hashed = hashlib.sha256()
    for part in parts:
        content = part.encode() if isinstance(part, str) else part
        hashed.update(len(content).to_bytes(8, "little"))
        hashed.update(content)
    return hashed.digest()


def file_digest(path: Path) -> bytes:
    """Hash the content of a file; raises OSError."""
    with path.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").digest()


def function_digest(function: Callable[..., Any]) -> bytes:
    """Hash a function by its name and code.

    Functions that carry state (a closure, default arguments, a callable object) also count a
    registration number: two closures of one code are two callables, in this process and its forks.
    """
    code = getattr(function, "__code__", None)
    name = f"{getattr(function, '__module__', '')}:{getattr(function, '__qualname__', '')}"
    has_state = (
        code is None
        or bool(getattr(function, "__closure__", None))
        or bool(getattr(function, "__defaults__", None))
    )
    number = str(next(_registrations)) if has_state else ""
    return digest_of("function", name, number, _code_digest(code) if code else b"")


def _code_digest(code: CodeType) -> bytes:
    constants = (
        _code_digest(one) if isinstance(one, CodeType) else _constant(one).encode()
        for one in code.co_consts
    )
    return digest_of(code.co_code, *code.co_names, "constants", *constants)


def _constant(value: object) -> str:
    """A text that does not depend on the order in which a set is hashed."""
    return repr(sorted(map(repr, value))) if isinstance(value, frozenset) else repr(value)
