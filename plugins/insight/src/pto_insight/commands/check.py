"""Run a case and report tasks that race: they touch the same bytes, and nothing orders them.

CASE is a folder with golden.py and kernels/kernel_config.py, as for `pto run`. The result does not
depend on the timing of the run. Pairs that the program excepts (OUTPUT_EXISTING, NO_DEP) are listed
apart. With --measure the bytes that the kernels touch decide, and accesses outside of buffers and
writes to inputs are found, too. Exit codes: 0 if only hints were found (outputs that no task reads,
pairs that the program excepts, possible races), 1 if a finding can make the result wrong, and those
of `pto run` if the case could not run.
"""

from __future__ import annotations

import argparse

from pto_insight.commands.logged_case import add_logged_case_arguments, graph_of_case


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``pto check``."""
    add_logged_case_arguments(parser)
    parser.add_argument(
        "--measure",
        action="store_true",
        help="build kernels that report their accesses, and compare the bytes that tasks really "
        "touch; needed for runtimes without declared accesses",
    )


def run(namespace: argparse.Namespace) -> int:
    """Print the findings."""
    graph = graph_of_case(namespace, measure=namespace.measure)
    findings = graph.check()
    print(findings)
    return 0 if findings.is_clean else 1
