"""Show where the time of a traced run went.

FILE is a *.trace.npz file that `pto run --trace --out DIR` wrote, or the folder DIR.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from pto_core.trace.files import read_trace
from pto_core.trace.summary import difference_text, summary_text


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
        text = summary_text(read_trace(namespace.file))
    else:
        text = difference_text(read_trace(namespace.before), read_trace(namespace.after))
    sys.stdout.write(text)
    return 0
