"""Format the counters of a runtime as rows of a table."""

from __future__ import annotations

import re
from collections.abc import Mapping

from pto_core.cli.durations import duration

_OF_RING = re.compile(r"ring(\d+)_(.+)")
_OF_THREAD = re.compile(r"(.+)_(\d+)")


def counter_rows(counters: Mapping[str, int]) -> list[tuple[str, str]]:
    """List the label and the text of each counter that is not 0.

    The counters ``ring0_x``, ``ring1_x``, ... become one row "x, by ring". The counters ``x_0``,
    ``x_1``, ... become one row "x, by scheduler".
    """
    groups: dict[str, list[tuple[str, int]]] = {}
    for name, value in counters.items():
        label, plain = _group(name)
        groups.setdefault(label, []).append((plain, value))
    return [
        (label, " / ".join(_text(name, value) for name, value in members))
        for label, members in groups.items()
        if any(value for _, value in members)
    ]


def _group(name: str) -> tuple[str, str]:
    """Return the label of a counter's row, and the counter's name without its number."""
    ring = _OF_RING.fullmatch(name)
    if ring:
        return f"{_label(ring[2])}, by ring", ring[2]
    thread = _OF_THREAD.fullmatch(name)
    if thread:
        return f"{_label(thread[1])}, by scheduler", thread[1]
    return _label(name), name


def _label(name: str) -> str:
    return name.removesuffix("_ns").replace("_", " ") + (" time" if name.endswith("_ns") else "")


def _text(name: str, value: int) -> str:
    return duration(value / 1e9) if name.endswith("_ns") and value else f"{value:,}"
