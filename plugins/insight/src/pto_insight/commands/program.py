"""Run a Python program under observation, for the commands that accept one instead of a case."""

from __future__ import annotations

import argparse
import builtins
import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import ModuleType

from pto_core.config.options import CHECK
from pto_core.errors import PtoError, UsageError
from pto_core.plugins import observation
from pto_insight.graphs import TaskGraph

Run = tuple[str, TaskGraph]
"""The path of the Worker or device of a run, and the graph of its tasks."""

_OF_CASES = (
    *("kernels", "golden", "platform", "runtime", "device", "case", "seed", "timeout"),
    "measure",
)
_LISTED = 20

PROGRAM_ARGUMENTS = (
    "the arguments of a program; its options follow --, as in: prog.py -- --epochs 3"
)
"""The help for the arguments that a program receives."""


def is_program(path: Path | None) -> bool:
    """Return whether a path names a Python program, not the folder of a case."""
    return path is not None and path.suffix == ".py"


def graph_of_program(namespace: argparse.Namespace) -> TaskGraph:
    """Run the program, and return the graph of the run that ``--run`` chooses.

    By default this is the first of the runs with the most tasks; standard error lists the others.
    """
    return _chosen(runs_of_program(namespace), namespace.run_number)[1]


def runs_of_program(namespace: argparse.Namespace) -> list[Run]:
    """Run the program, and return the runs that have tasks. Raises UsageError if there is none."""
    for name in _OF_CASES:
        if getattr(namespace, name, None):
            raise UsageError(
                f"--{name} is an option for a case, and {namespace.path} is a program; state it in "
                "the program",
                name=name,
            )
    seen = observed(namespace.path, namespace.arguments, observation.Observation())
    runs = [(path, _with_hazards(graph, namespace.hazards)) for path, graph in seen.graphs]
    runs = [run for run in runs if len(run[1])]
    if not runs:
        raise UsageError(
            f"{namespace.path} ran no task of a Worker or a device in its own process, so it has "
            "no graph",
            name="program",
            value=str(namespace.path),
        )
    return runs


def heading(number: int, run: Run) -> str:
    """Return the text that identifies a run, whose number counts from 1."""
    path, graph = run
    first = graph.task(0)
    where = f" at {first.where}" if first.where else ""
    return f"run {number} on {path}: {len(graph)} tasks, the first is {first.kernel}{where}"


def observed(
    program: Path, arguments: Sequence[str], seen: observation.Observation
) -> observation.Observation:
    """Run a program as ``python PROGRAM ARGUMENTS`` does, and return what was observed.

    What it prints is printed to standard error. Raises PtoError if it raises an exception or exits
    with another code than 0, and OSError.
    """
    source = program.read_bytes()
    main = ModuleType("__main__")
    vars(main).update(__file__=str(program), __builtins__=builtins)
    sys.modules["__main__"] = main
    sys.argv = [str(program), *arguments]
    sys.path[0] = str(program.resolve().parent)
    observation.begin(seen)
    try:
        with _output_to_stderr():
            exec(compile(source, str(program), "exec", dont_inherit=True), vars(main))
    except SystemExit as exit_:
        if exit_.code not in (None, 0):
            raise PtoError(f"{program} exited with {exit_.code!r}") from None
    except Exception as error:
        where = error.__traceback__
        traceback.print_exception(error.with_traceback(where and where.tb_next))
        raise PtoError(f"{program} raised {type(error).__name__}") from error
    finally:
        observation.begin(None)
    return seen


@contextmanager
def _output_to_stderr() -> Iterator[None]:
    """Print what this process and its children print to standard error, as kernels of a case do."""
    sys.stdout.flush()
    saved = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(saved, 1)
        os.close(saved)


def _with_hazards(graph: TaskGraph, hazards: str | None) -> TaskGraph:
    if hazards in (None, CHECK):
        return graph
    return TaskGraph(replace(graph.log, is_full=hazards == "full"))


def _chosen(runs: Sequence[Run], number: int | None) -> Run:
    if number is not None and 1 <= number <= len(runs):
        return runs[number - 1]
    listed = [heading(place, run) for place, run in enumerate(runs[:_LISTED], 1)]
    more = [f"... and {len(runs) - _LISTED} more"] * (len(runs) > _LISTED)
    if number is not None:
        which = f"there is no run {number} of the program; choose one with --run N:"
        raise UsageError("\n  ".join([which, *listed, *more]), name="run", value=number)
    place, chosen = max(enumerate(runs, 1), key=lambda run: len(run[1][1]))
    if len(runs) > 1:
        which = f"this is run {place} of {len(runs)}; choose another with --run N:"
        print("\n  ".join([which, *listed, *more]), file=sys.stderr)
    return chosen
