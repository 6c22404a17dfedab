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


def lines(cells: list[Any]) -> list[tuple[str, int]]:
    """Return each printed line with the number of its cell, sorted, because children print, too."""
    texts = ["" for _ in cells]
    for number, cell in enumerate(cells):
        for output in cell.get("outputs", ()):
            if output.output_type == "stream":
                texts[number] += output.text
    return sorted((line, number) for number, text in enumerate(texts) for line in text.splitlines())


def shown(cell: Any) -> list[Any]:
    """Return the outputs of a cell that are not text; of an output with times, only its kinds."""
    others: list[Any] = []
    for output in cell.get("outputs", ()):
        if output.output_type == "stream":
            continue
        if "times" in cell.metadata.get("tags", ()):
            others.append(sorted(output.data))
        else:
            others.append({kind: CELL.sub("cell", text) for kind, text in output.data.items()})
    return others


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
    before, after = lines(stored.cells), lines(executed.cells)
    assert [line for line, _ in after] == [line for line, _ in before]
    for (line, cell), (_, place) in zip(before, after, strict=True):
        # The kernel may receive the last line of a task when it has begun the next cell.
        assert cell <= place <= cell + 1, line
