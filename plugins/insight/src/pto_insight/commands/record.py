"""Run a case, and keep the run in one file: program, inputs, settings, outputs and versions.

CASE is a folder with golden.py and kernels/kernel_config.py, as for `pto run`. `pto run FILE` runs
the file again on any machine and version, and shows first what differs from the recorded run. The
exit codes are those of `pto run`; a run that fails is recorded too.
"""

from __future__ import annotations

import argparse
import os
from dataclasses import replace
from pathlib import Path

from pto_core.cases.job import RECORD_SUFFIX
from pto_core.cases.supervisor import supervise
from pto_core.cli.case_display import make_display
from pto_core.cli.run import job_of
from pto_core.errors import UnsupportedError, UsageError
from pto_insight.commands.logged_case import add_one_case_arguments


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``pto record``."""
    add_one_case_arguments(parser)
    parser.add_argument(
        "--skip-golden", action="store_true", help="do not compare with the reference"
    )
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="default: CASE.ptorecord in this folder"
    )


def run(namespace: argparse.Namespace) -> int:
    """Run and record the case; return the exit code of the run."""
    if namespace.path is not None and namespace.path.suffix == ".py":
        raise UnsupportedError(
            f"{namespace.path} cannot be recorded: pto does not know the inputs of a program or of "
            "a scene test; record the folder of a case",
            name="case",
            value=str(namespace.path),
        )
    job = job_of(namespace)
    output = namespace.output or Path(job.golden.parent.name + RECORD_SUFFIX)
    _refuse(output)
    job = replace(job, skip_golden=namespace.skip_golden, record=output.absolute())
    display = make_display(quiet=False, silent=False, verbose=namespace.verbose > 0)
    try:
        (report,) = supervise(job, display, namespace.timeout)
    finally:
        display.close()
    if output.exists():
        print(f"recorded {output}")
    return report.exit_code


def _refuse(output: Path) -> None:
    """Raise UsageError if a record cannot be written to a path, or would replace a file."""
    problem = None
    if output.suffix != RECORD_SUFFIX:
        problem = f"the name of the record {output} does not end in {RECORD_SUFFIX}; name it"
    elif os.path.lexists(output):
        problem = f"{output} exists; remove it, or name another file"
    elif not output.absolute().parent.is_dir():
        problem = f"the folder of the record {output} does not exist; make it, or name another file"
    if problem is not None:
        raise UsageError(f"{problem} with -o FILE{RECORD_SUFFIX}", name="output", value=str(output))
