"""Show where the time of a run went.

`pto trace summary FILE` prints the kernels, the waiting, the limits and the critical path. `pto
trace diff A B` prints what changed between two runs. FILE is a *.trace.npz file that `pto run
--trace --out DIR` or the method `write` of the trace of a Worker wrote, a folder with one such
file, or DIR, of which the newest run with a trace is read. `pto trace PROGRAM.py ARG ...` runs a
program as `python PROGRAM.py ARG ...` does, and prints the summary of each Worker that it starts.
"""

from __future__ import annotations

import argparse
import sys
from contextlib import nullcontext
from pathlib import Path

from pto_core.cli.run_folder import RunFolder
from pto_core.errors import UsageError
from pto_core.plugins import observation
from pto_insight.commands.program import PROGRAM_ARGUMENTS, is_program, observed
from pto_insight.traces import Trace
from pto_insight.traces.summary import difference_text, worker_difference
from pto_insight.traces.worker_trace import WorkerTrace, read_any_trace

HAS_MIXED_ARGUMENTS = True
LEVELS = (1, 2, 3, 4)
_FILES = {"summary": 1, "diff": 2}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``pto trace``."""
    parser.add_argument("what", metavar="COMMAND", help="summary, diff, or PROGRAM.py")
    parser.add_argument("files", nargs="*", metavar="FILE", help=f"or {PROGRAM_ARGUMENTS}")
    program = parser.add_argument_group("a Python program")
    program.add_argument(
        "--trace-level",
        type=int,
        choices=LEVELS,
        metavar="N",
        help="1 tasks (default), 2 also scheduling, 3 also waits, 4 also every dependency",
    )
    program.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="write the files of each trace to a new folder in DIR; its index.html shows all runs",
    )


def run(namespace: argparse.Namespace) -> int:
    """Print the summary of a trace, the comparison of two, or the summary of a program."""
    what, files = namespace.what, namespace.files
    if is_program(Path(what)):
        return _trace_program(namespace)
    if len(files) != _FILES.get(what):
        raise UsageError(
            f"pto trace {' '.join([what, *files])} is no command; use pto trace summary FILE, pto "
            "trace diff A B, or pto trace PROGRAM.py",
            name="command",
            value=what,
        )
    if namespace.out is not None or namespace.trace_level is not None:
        raise UsageError(
            "--out and --trace-level are for a program: pto trace PROGRAM.py", name="out"
        )
    traces = [read_any_trace(Path(file)) for file in files]
    sys.stdout.write(traces[0].table() if what == "summary" else _difference(*traces))
    return 0


def _trace_program(namespace: argparse.Namespace) -> int:
    """Run a program, and print the summary of each of its Workers."""
    program = Path(namespace.what)
    seen = observation.Observation(namespace.trace_level or min(LEVELS))
    with RunFolder(namespace.out) if namespace.out is not None else nullcontext() as folder:
        try:
            observed(program, namespace.files, seen)
        finally:
            _write_traces(seen, program, None if folder is None else folder.path)
        if not seen.tracings:
            raise UsageError(
                f"{program} started no Worker in its own process, so there is no trace",
                name="program",
                value=str(program),
            )
    return 0


def _write_traces(seen: observation.Observation, program: Path, out: Path | None) -> None:
    for number, tracing in enumerate(seen.tracings):
        trace = WorkerTrace.of(tracing.end())
        sys.stdout.write(trace.table())
        if out is not None:
            trace.write(out / f"{program.stem}{f'.{number}' if number else ''}")


def _difference(before: Trace | WorkerTrace, after: Trace | WorkerTrace) -> str:
    """Return the comparison of two traces of one kind; raise UsageError for two kinds."""
    if isinstance(before, WorkerTrace) and isinstance(after, WorkerTrace):
        return worker_difference(before, after)
    if isinstance(before, Trace) and isinstance(after, Trace):
        return difference_text(before, after)
    kinds = ["a Worker" if isinstance(one, WorkerTrace) else "a device" for one in (before, after)]
    raise UsageError(
        f"A is a trace of {kinds[0]}, and B one of {kinds[1]}; pass two traces of one kind",
        name="trace",
        value=kinds[1],
        expected=kinds[0],
    )
