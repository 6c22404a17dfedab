"""Run a case or a Python program and report tasks that race.

Two tasks race if they touch the same bytes, and nothing orders them. CASE is a folder with
golden.py and kernels/kernel_config.py, as for `pto run`, or PROGRAM.py, which runs as `python
PROGRAM.py ARG ...` does; with --hazards raw, the report also has what only full hazards order. The
result does not depend on the timing of the run. Pairs that the program excepts (OUTPUT_EXISTING,
NO_DEP) are listed apart. With --measure the bytes that the kernels touch decide, and accesses
outside of buffers and writes to inputs are found, too. Exit codes: 0 if only hints were found
(outputs that no task reads, pairs that the program excepts, possible races), 1 if a finding can
make the result wrong, and those of `pto run` if the case could not run.
"""

from __future__ import annotations

import argparse

from pto_insight.commands.logged_case import (
    add_logged_case_arguments,
    add_program_arguments,
    graph_of_case,
)
from pto_insight.commands.program import heading, is_program, runs_of_program

HAS_MIXED_ARGUMENTS = True


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``pto check``."""
    add_logged_case_arguments(parser)
    add_program_arguments(parser)
    parser.add_argument(
        "--measure",
        action="store_true",
        help="build kernels that report their accesses, and compare the bytes that tasks really "
        "touch; needed for runtimes without declared accesses",
    )


def run(namespace: argparse.Namespace) -> int:
    """Print the findings."""
    if is_program(namespace.path) and namespace.run_number is None:
        return _check_all(namespace)
    graph = graph_of_case(namespace, measure=namespace.measure)
    findings = graph.check()
    print(findings)
    return 0 if findings.is_clean else 1


def _check_all(namespace: argparse.Namespace) -> int:
    """Print the findings for each run of a program."""
    runs, is_clean = runs_of_program(namespace), True
    for number, run in enumerate(runs, 1):
        findings = run[1].check()
        is_clean &= findings.is_clean
        print(f"{heading(number, run)}\n{findings}" if len(runs) > 1 else findings)
    return 0 if is_clean else 1
