"""``python -m benchmarks``: measure, print, write JSON."""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks import (
    analysis,
    command,
    hosts,
    idle,
    level2,
    links,
    python_graph,
    python_programs,
    remote,
    table,
    tensors,
    traces,
    worker,
)
from benchmarks.effort import Effort
from benchmarks.figure import Figure
from benchmarks.machine import describe, load
from benchmarks.native import Binaries

GROUPS = (
    "level2",
    "tensors",
    "worker",
    "idle",
    "python",
    "programs",
    "command",
    "analysis",
    "traces",
    "links",
    "remote",
    "hosts",
)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("groups", nargs="*", help=f"default: all, {', '.join(GROUPS)}")
    parser.add_argument(
        "--repeats", type=int, default=7, metavar="N", help="number of samples of each figure"
    )
    parser.add_argument(
        "--quick", action="store_true", help="use a hundredth of each size, to try the program"
    )
    parser.add_argument("--json", type=Path, default=Path("build/benchmarks.json"))
    parser.add_argument("--markdown", type=Path, help="also write the table to this file")
    parser.add_argument(
        "--taskflow-include",
        default=os.environ.get("TASKFLOW_INCLUDE"),
        help="include folder of Taskflow; without it Taskflow is not measured",
    )
    arguments = parser.parse_args()
    unknown = set(arguments.groups) - set(GROUPS)
    if unknown:
        parser.error(f"no group {', '.join(sorted(unknown))}; groups: {', '.join(GROUPS)}")
    if arguments.repeats < 1:
        parser.error(f"--repeats is {arguments.repeats}; expected 1 or more")
    return arguments


def _measure(arguments: argparse.Namespace, effort: Effort) -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        binaries = Binaries(Path(folder), arguments.taskflow_include)
        measures = {
            "level2": lambda: level2.figures(binaries, effort),
            "tensors": lambda: tensors.figures(binaries, effort),
            "worker": lambda: worker.figures(binaries, effort),
            "idle": lambda: idle.figures(effort),
            "python": lambda: python_graph.figures(binaries, effort),
            "programs": lambda: python_programs.figures(effort),
            "command": lambda: command.figures(effort),
            "analysis": lambda: analysis.figures(effort),
            "traces": lambda: traces.figures(binaries, effort),
            "links": lambda: links.figures(effort),
            "remote": lambda: remote.figures(effort),
            "hosts": lambda: hosts.figures(effort),
        }
        for group in GROUPS:
            if group in (arguments.groups or GROUPS):
                yield from measures[group]()


def main() -> None:
    """Measure the selected groups."""
    arguments = _arguments()
    effort = Effort(arguments.repeats, divisor=100 if arguments.quick else 1)
    machine = {**describe(), "effort": str(effort), "load at the start": load()}
    for key, value in machine.items():
        print(f"{key}: {value}")
    figures = []
    for figure in _measure(arguments, effort):
        print(f"  measured {figure.name}", flush=True)
        figures.append(figure)
    machine["load at the end"] = load()
    print("\n" + table.plain(figures))
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    content = {"machine": machine, "figures": [figure.as_json() for figure in figures]}
    arguments.json.write_text(json.dumps(content, indent=2) + "\n")
    if arguments.markdown:
        arguments.markdown.write_text(table.markdown(figures, machine))
    missed = [figure.name for figure in figures if figure.met is False]
    print(f"\n{len(figures)} figures, {len(missed)} over budget; JSON in {arguments.json}")


main()
