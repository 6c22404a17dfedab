"""Run a case or a Python program and write the graph of its tasks, with the reason of each edge.

CASE is a folder with golden.py and kernels/kernel_config.py, as for `pto run`, or PROGRAM.py, which
runs as `python PROGRAM.py ARG ...` does. The graph has all edges of the program and does not depend
on the timing of the run.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from pto_core.output_files import write_text
from pto_insight.commands.logged_case import (
    add_logged_case_arguments,
    add_program_arguments,
    graph_of_case,
)
from pto_insight.graphs.drawing import FOLDS
from pto_insight.graphs.graph import FORMATS, format_of, text_of

HAS_MIXED_ARGUMENTS = True


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``pto graph``."""
    add_logged_case_arguments(parser)
    add_program_arguments(parser)
    out = parser.add_argument_group("the graph")
    out.add_argument(
        "--format", choices=FORMATS, help="default: that of the ending of --out, otherwise svg"
    )
    out.add_argument("--out", type=Path, metavar="FILE", help="default: standard output")
    out.add_argument(
        "--fold",
        choices=(*FOLDS, "none"),
        default="auto",
        help="draw one iteration of each loop, or the tasks of a scope or of a kernel as one node; "
        "auto: above 100 tasks; none: draw each task",
    )


def run(namespace: argparse.Namespace) -> int:
    """Write the graph."""
    fold = None if namespace.fold == "none" else namespace.fold
    file_format = namespace.format or (format_of(namespace.out) if namespace.out else "svg")
    text = text_of(graph_of_case(namespace), file_format, fold)
    if namespace.out is None:
        sys.stdout.write(text)
    else:
        write_text(namespace.out, text)
    return 0
