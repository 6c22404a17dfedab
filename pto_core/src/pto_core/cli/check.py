"""Run a case and report tasks that race: they touch the same bytes, and nothing orders them.

CASE is a folder with golden.py and kernels/kernel_config.py, as for `pto run`. The result does not
depend on the timing of the run. Pairs that the program excepts (OUTPUT_EXISTING, NO_DEP) are listed
apart. Exit codes: 0 no races, 1 races.
"""

from __future__ import annotations

import argparse

from pto_core.cli.logged_case import add_logged_case_arguments, graph_of_case
from pto_core.errors import UnsupportedError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``pto check``."""
    add_logged_case_arguments(parser)


def run(namespace: argparse.Namespace) -> int:
    """Print the findings."""
    graph = graph_of_case(namespace)
    if not graph.log.has_accesses:
        raise UnsupportedError(
            "this runtime does not know what its tasks read and write, so races cannot be found; "
            "choose a runtime that finds dependencies with -r tensormap_and_ringbuffer",
            name="runtime",
        )
    findings = graph.check()
    print(findings)
    return 0 if findings.is_clean else 1
