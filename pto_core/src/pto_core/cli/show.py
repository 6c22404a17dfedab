"""Print tables: drawn on a terminal, one plain line per row elsewhere, or JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any


def show_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print ``rows`` as a table to standard output."""
    if sys.stdout.isatty():
        _draw(title, columns, rows)
    else:
        _print_plainly(columns, list(rows))


def show_json(value: Any) -> None:
    """Print ``value`` as JSON. A part of it that has no JSON form is printed as text."""
    json.dump(value, sys.stdout, indent=2, default=str)
    print()


def _draw(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(_escaped(cell) for cell in row))
    Console().print(table)


def _escaped(cell: str) -> str:
    from rich.markup import escape

    return escape(cell)


def _print_plainly(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Align the columns; a dash marks an empty cell, so that each line has all columns."""
    cells = [[cell or "-" for cell in row] for row in (columns, *rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(columns))]
    for row in cells:
        print(
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        )
