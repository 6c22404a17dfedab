"""Show where the time of a traced run went.

FILE is a *.trace.npz file that `pto run --trace --out DIR` or the method `write` of the trace of a
Worker wrote, or a folder with one such file.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from pto_core.errors import UsageError
from pto_insight.traces import Trace
from pto_insight.traces.summary import difference_text, worker_difference
from pto_insight.traces.worker_trace import WorkerTrace, read_any_trace


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the subcommands ``summary`` and ``diff``."""
    commands = parser.add_subparsers(dest="what", required=True, metavar="COMMAND")
    summary = commands.add_parser("summary", help="kernels, waiting, limits and critical path")
    summary.add_argument("file", type=Path, metavar="FILE")
    diff = commands.add_parser("diff", help="what changed between two runs")
    diff.add_argument("before", type=Path, metavar="A")
    diff.add_argument("after", type=Path, metavar="B")


def run(namespace: argparse.Namespace) -> int:
    """Print the summary of a trace, or the comparison of two."""
    if namespace.what == "summary":
        text = read_any_trace(namespace.file).table()
    else:
        text = _difference(read_any_trace(namespace.before), read_any_trace(namespace.after))
    sys.stdout.write(text)
    return 0


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
