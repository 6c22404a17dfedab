"""Run a case or a Python program and explain why task B waits for task A.

CASE is a folder with golden.py and kernels/kernel_config.py, as for `pto run`, or PROGRAM.py, which
runs as `python PROGRAM.py ARG ...` does. A task is a number
in the order of submits, such as 12, or KERNEL#12, or the name of a kernel that has one task. Prints
a chain of edges with their reasons. Exit codes: 0 B waits for A, 1 it does not.
"""

from __future__ import annotations

import argparse

from pto_core.errors import UsageError
from pto_insight.commands.logged_case import (
    add_logged_case_arguments,
    add_program_arguments,
    graph_of_case,
)

HAS_MIXED_ARGUMENTS = True


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``pto why``."""
    add_logged_case_arguments(parser)
    parser.add_argument("second", metavar="B", help="the task that waits")
    parser.add_argument("first", metavar="A", help="the task for which it waits")
    add_program_arguments(parser)


def run(namespace: argparse.Namespace) -> int:
    """Print the explanation. Raises UsageError if a task is missing."""
    if namespace.path is None and None in (namespace.kernels, namespace.golden):
        raise UsageError(
            f"a case and two tasks are needed, only {namespace.second} and {namespace.first} were "
            "given; for example: pto why CASE multiply#3 add#0",
            name="case",
        )
    explanation = graph_of_case(namespace).why(namespace.second, namespace.first)
    print(explanation)
    return 0 if explanation else 1
