"""The output of a notebook: tables, and text that changes in place."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from html import escape
from typing import Any


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


class OutputInPlace:
    """A part of the output of a cell that each :meth:`show` replaces."""

    def __init__(self) -> None:
        self._handle: Any = None

    def show(self, html: str, text: str) -> None:
        """Show ``html``, or ``text`` where the notebook shows no HTML."""
        data = {"text/html": html, "text/plain": text}
        if self._handle is None:
            shell = sys.modules["IPython.core.display_functions"]  # each kernel loads it
            self._handle = shell.display(data, raw=True, display_id=True)
        else:
            self._handle.update(data, raw=True)
