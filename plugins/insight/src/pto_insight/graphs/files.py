"""Write a graph to a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from pto_core.errors import UsageError
from pto_core.output_files import printable, write_text
from pto_insight.graphs.document import document
from pto_insight.graphs.dot import dot
from pto_insight.graphs.svg import svg

if TYPE_CHECKING:
    from pto_insight.graphs.logged_graph import LoggedGraph

FORMATS = ("svg", "dot", "json")


def text_of(graph: LoggedGraph, file_format: str, fold: str | None) -> str:
    """Return the graph in one of ``FORMATS``."""
    if file_format == "json":
        return json.dumps(document(graph), indent=1) + "\n"
    return printable(dot(graph, fold) if file_format == "dot" else svg(graph, fold))


def format_of(path: Path) -> str:
    """Return the format that the ending of a path selects. Raises UsageError."""
    ending = path.suffix.removeprefix(".")
    if ending not in FORMATS:
        raise UsageError(
            f"the graph cannot be written to {path}; the file name must end in .svg, .dot or .json",
            name="path",
            value=str(path),
        )
    return ending


def save(graph: LoggedGraph, path: str | Path, fold: str | None) -> None:
    """Write the graph; the ending of the path selects the format. Raises UsageError."""
    path = Path(path)
    write_text(path, text_of(graph, format_of(path), fold))
