"""Parsers for the settings that the core and its plugins declare.

Each parser takes a text and returns a value. For an invalid text it raises ``ValueError`` with a
phrase that follows the word "expected". Some functions return a parser, here one with bounds::

    Option("mychip.queues", 4, parse.integer(minimum=1, maximum=64), "submission queues per device")

All parsers can be pickled.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

_Value = TypeVar("_Value")
_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"0", "false", "no", "off"})
_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}


def text(value: str) -> str:
    """Return the text unchanged; refuse an empty text."""
    if not value.strip():
        raise ValueError("a text that is not empty")
    return value


def boolean(value: str) -> bool:
    """Parse ``true`` or ``false``; yes/no, on/off and 1/0 are accepted too."""
    word = value.strip().lower()
    if word in _TRUE | _FALSE:
        return word in _TRUE
    raise ValueError("true or false")


def path(value: str) -> Path:
    """Parse a path; ``~`` is the home folder. A relative path is relative to the settings file."""
    try:
        return Path(text(value)).expanduser()
    except RuntimeError:
        user = value.partition("/")[0]
        raise ValueError(f"a path; there is no home folder of {user}") from None


def size_bytes(value: str) -> int:
    """Parse a size in bytes, with an optional binary unit: ``4096``, ``64K``, ``16M``, ``2GiB``."""
    match = re.fullmatch(r"(\d+)\s*([kmgt]?)(?:ib|b)?", value.strip().lower())
    if match is None:
        raise ValueError("a size in bytes such as 4096, 64K, 16M or 2G")
    return int(match[1]) * _UNITS[match[2]]


def choice(*names: str) -> Callable[[str], str]:
    """Return a parser for one of ``names``."""
    return partial(_choice, names=names)


def integer(minimum: int | None = None, maximum: int | None = None) -> Callable[[str], int]:
    """Return a parser for an integer within the bounds, both included."""
    return partial(_integer, minimum=minimum, maximum=maximum)


def number(minimum: float | None = None) -> Callable[[str], float]:
    """Return a parser for a finite number that is at least ``minimum``."""
    return partial(_number, minimum=minimum)


def optional(inner: Callable[[str], _Value]) -> Callable[[str], _Value | None]:
    """Return a parser for the word ``none`` and for every text that ``inner`` accepts."""
    return partial(_optional, inner=inner)


def several(inner: Callable[[str], _Value], count: int) -> Callable[[str], tuple[_Value, ...]]:
    """Return a parser for ``count`` values separated by commas; one value stands for all."""
    return partial(_several, inner=inner, count=count)


def _choice(value: str, *, names: tuple[str, ...]) -> str:
    if value not in names:
        raise ValueError(" or ".join(filter(None, [", ".join(names[:-1]), names[-1]])))
    return value


def _integer(value: str, *, minimum: int | None, maximum: int | None) -> int:
    expected = "a whole number" + _bounds(minimum, maximum)
    try:
        number = int(value, 0)
    except ValueError:
        raise ValueError(expected) from None
    if (minimum is not None and number < minimum) or (maximum is not None and number > maximum):
        raise ValueError(expected)
    return number


def _number(value: str, *, minimum: float | None) -> float:
    expected = "a number" + _bounds(minimum, None)
    try:
        number = float(value)
    except ValueError:
        raise ValueError(expected) from None
    if not math.isfinite(number) or (minimum is not None and number < minimum):
        raise ValueError(expected)
    return number


def _bounds(minimum: float | None, maximum: float | None) -> str:
    if minimum is not None and maximum is not None:
        return f" from {minimum} to {maximum}"
    if minimum is not None:
        return f", at least {minimum}"
    return f", at most {maximum}" if maximum is not None else ""


def _optional(value: str, *, inner: Callable[[str], _Value]) -> _Value | None:
    if value.strip().lower() == "none":
        return None
    try:
        return inner(value)
    except ValueError as error:
        raise ValueError(f"{error}, or none") from None


def _several(value: str, *, inner: Callable[[str], _Value], count: int) -> tuple[_Value, ...]:
    parts = value.split(",")
    if len(parts) not in (1, count):
        raise ValueError(f"one value, or {count} values separated by commas")
    values = tuple(inner(part.strip()) for part in parts)
    return values * count if len(values) == 1 else values
