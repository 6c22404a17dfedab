"""Print tables that fit the terminal, or JSON; format durations and counters."""

from __future__ import annotations

import json
import re
import shutil
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

_COLUMNS_IN_A_PIPE = 120
_OF_RING = re.compile(r"ring(\d+)_(.+)")
_OF_THREAD = re.compile(r"(.+)_(\d+)")


def show_table(
    title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], notes: Iterable[str] = ()
) -> None:
    """Print ``rows`` as a table: drawn on a terminal, without lines elsewhere; then the notes.

    The output is as wide as the terminal, or as ``COLUMNS``; longer cells are folded. A dash marks
    an empty cell. Notes are for texts that are too long for a cell. Scripts read JSON instead.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    is_terminal = sys.stdout.isatty()
    width = shutil.get_terminal_size((_COLUMNS_IN_A_PIPE, 24)).columns
    style: dict[str, Any] = {} if is_terminal else {"box": None, "pad_edge": False}
    table = Table(title=title if is_terminal else None, title_justify="left", **style)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell or "-") for cell in row))
    console = Console(width=width)
    with console.capture() as captured:
        console.print(table)
    print("\n".join(line.rstrip() for line in captured.get().splitlines()))
    for note in notes:
        print(textwrap.fill(note, width, subsequent_indent="  ", break_on_hyphens=False))


def show_json(value: Any) -> None:
    """Print ``value`` as JSON. A part of it that has no JSON form is printed as text."""
    json.dump(value, sys.stdout, indent=2, default=str)
    print()


def duration(seconds: float) -> str:
    """Format a duration with a suitable unit: ``1.24 s``, ``3.1 ms``, ``112 us``."""
    if seconds >= 1:
        return f"{seconds:.2f} s"
    if seconds >= 1e-3:
        return f"{seconds * 1e3:.3g} ms" if seconds < 0.9995 else "1.00 s"
    return f"{seconds * 1e6:.3g} us"


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
