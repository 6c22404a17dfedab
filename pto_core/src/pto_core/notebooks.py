"""The output of a notebook: tables, and the streams that it shows."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape


def is_of_notebook(stream: object) -> bool:
    """Return whether text of a stream appears in a notebook."""
    return type(stream).__module__.startswith("ipykernel.")


def html_table(title: str, rows: Iterable[tuple[str, object]]) -> str:
    """Return a table in HTML with a name and a value in each row."""
    style = "text-align: left; white-space: pre-line"
    lines = (
        f"<tr><th>{escape(name)}</th><td style='{style}'>{escape(str(value))}</td></tr>"
        for name, value in rows
    )
    return f"<table><caption>{escape(title)}</caption>{''.join(lines)}</table>"
