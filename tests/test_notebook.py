"""The notebook of the examples shows its stored outputs when a kernel executes it."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).parents[1] / "examples" / "21_notebook" / "notebook.ipynb"
CELL = re.compile(r"\S*/ipykernel_\d+/\d+\.py")  # the file name of a cell


def shown(cell: Any) -> tuple[dict[str, list[str]], list[Any]]:
    """Return the lines of the streams of a cell, and its other outputs.

    Lines are sorted, because two processes print them. Only the kinds of an output with times are
    returned.
    """
    texts: dict[str, str] = {}
    others: list[Any] = []
    for output in cell.get("outputs", ()):
        if output.output_type == "stream":
            texts[output.name] = texts.get(output.name, "") + output.text
        elif "times" in cell.metadata.get("tags", ()):
            others.append(sorted(output.data))
        else:
            others.append({kind: CELL.sub("cell", text) for kind, text in output.data.items()})
    return {name: sorted(text.splitlines()) for name, text in texts.items()}, others


def test_a_kernel_shows_the_stored_outputs(tmp_path: Path) -> None:
    stored = nbformat.read(NOTEBOOK, as_version=4)
    executed = nbformat.read(NOTEBOOK, as_version=4)
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in ("PYTEST_CURRENT_TEST", "PYTHONUNBUFFERED")  # they change the streams
    }
    environment["IPYTHONDIR"] = str(tmp_path)
    NotebookClient(executed, timeout=120).execute(env=environment)
    for before, after in zip(stored.cells, executed.cells, strict=True):
        assert shown(after) == shown(before), before.source
