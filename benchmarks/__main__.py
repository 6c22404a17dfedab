"""``python -m benchmarks``: measure, print, write JSON."""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks import command, level2, python_graph, table
from benchmarks.figure import Figure
from benchmarks.machine import describe
from benchmarks.native import Binaries


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "groups", nargs="*", help="level2, python, command; all of them without this"
    )
    parser.add_argument("--json", type=Path, default=Path("build/benchmarks.json"))
    parser.add_argument("--markdown", type=Path, help="write the table as a page, too")
    parser.add_argument(
        "--taskflow-include",
        default=os.environ.get("TASKFLOW_INCLUDE"),
        help="include folder of Taskflow, which is measured only with it",
    )
    return parser.parse_args()


def _measure(arguments: argparse.Namespace) -> Iterator[Figure]:
    wanted = arguments.groups or ["level2", "python", "command"]
    with tempfile.TemporaryDirectory() as folder:
        if "level2" in wanted:
            yield from level2.figures(Binaries(Path(folder), arguments.taskflow_include))
        if "python" in wanted:
            yield from python_graph.figures()
        if "command" in wanted:
            yield from command.figures()


def main() -> None:
    """Measure what was asked for."""
    arguments = _arguments()
    machine = describe()
    for key, value in machine.items():
        print(f"{key}: {value}")
    figures = []
    for figure in _measure(arguments):
        print(f"  measured {figure.name}", flush=True)
        figures.append(figure)
    print("\n" + table.plain(figures))
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    content = {"machine": machine, "figures": [figure.as_json() for figure in figures]}
    arguments.json.write_text(json.dumps(content, indent=2) + "\n")
    if arguments.markdown:
        arguments.markdown.write_text(table.markdown(figures, machine))
    missed = [figure.name for figure in figures if figure.met is False]
    print(f"\n{len(figures)} figures, {len(missed)} over budget; JSON in {arguments.json}")


main()
