"""Show where the time of a traced run went.

FILE is a *.trace.npz file that `pto run --trace --out DIR` or the method `write` of the trace of a
Worker wrote, or a folder with one such file.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from pto_core.trace import Trace
from pto_core.trace.summary import difference_text
from pto_core.trace.worker_summary import worker_view
from pto_core.trace.worker_trace import WorkerTrace, read_any_trace


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
        before, after = map(read_any_trace, (namespace.before, namespace.after))
        text = difference_text(_top(before), _top(after))
    sys.stdout.write(text)
    return 0


def _top(trace: Trace | WorkerTrace) -> Trace:
    """Return the part of a trace to compare: for a Worker, its own tasks."""
    return worker_view(trace, trace.paths[0]) if isinstance(trace, WorkerTrace) else trace
