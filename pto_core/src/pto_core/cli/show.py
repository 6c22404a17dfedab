"""Print tables that fit the terminal, or JSON."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

_COLUMNS_IN_A_PIPE = 120


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
