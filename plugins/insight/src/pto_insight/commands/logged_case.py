"""Run a case, or a Python program, with its access log, for the commands that explain a graph."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

from pto_core import log
from pto_core.cases.job import Job
from pto_core.cases.report import CaseReport
from pto_core.cases.supervisor import Listener, supervise
from pto_core.cli.run import SEED_HELP, add_case_arguments, job_of, natural
from pto_core.errors import UnsupportedError, UsageError, WrongResultError
from pto_insight.commands.program import PROGRAM_ARGUMENTS, graph_of_program, is_program
from pto_insight.graphs import AccessLog, TaskGraph


def add_one_case_arguments(parser: argparse.ArgumentParser, seed_help: str = SEED_HELP) -> None:
    """Declare the options that select and run one case."""
    where, place, _ = add_case_arguments(parser)
    where.add_argument("--case", metavar="NAME", help="one of ALL_CASES; default: DEFAULT_CASE")
    place.add_argument("--seed", type=natural, metavar="N", help=seed_help)


def add_logged_case_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options that select and run one case, or a Python program."""
    add_one_case_arguments(parser)
    program = parser.add_argument_group("a Python program, PROGRAM.py in the place of CASE")
    program.add_argument(
        "--run",
        dest="run_number",
        type=natural,
        metavar="N",
        help="which of its runs, sessions and replays, counted from 1; default: the one with the "
        "most tasks, and check reports all",
    )


def add_program_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments that a Python program receives; the last positional arguments."""
    parser.add_argument("arguments", nargs="*", metavar="ARG", help=PROGRAM_ARGUMENTS)


def graph_of_case(namespace: argparse.Namespace, *, measure: bool = False) -> TaskGraph:
    """Run the case without its reference and return its graph; raise the error of the run.

    ``measure``: measure the accesses of its kernels, in a deterministic run. A Python program is
    run as it is.
    """
    if is_program(namespace.path):
        return graph_of_program(namespace)
    if namespace.arguments or namespace.run_number is not None:
        raise UsageError(
            "--run and arguments are for a Python program, PROGRAM.py, and a case takes none",
            name="arguments",
        )
    job = replace(job_of(namespace), skip_golden=True)
    if measure:
        job = replace(job, settings={**job.settings, "measure": True}, seed=job.seed or 0)
    with log_folder() as folder:
        report = run_job(replace(job, log_folder=folder), namespace.timeout)
        return TaskGraph(load_log(folder, report))


def run_job(job: Job, timeout_s: float | None) -> CaseReport:
    """Run a job with one case; raise the error of the run.

    Outputs that differ from those of a record are no error.
    """
    report = supervise(job, _OutputOnly(), timeout_s)[0]
    errors = tuple(one for one in report.errors if not isinstance(one, WrongResultError))
    return replace(report, errors=errors).check()


@contextmanager
def log_folder() -> Iterator[Path]:
    """Make a folder for access logs, and remove it at the end."""
    with tempfile.TemporaryDirectory(prefix="pto-log-") as folder:
        yield Path(folder)


def load_log(folder: Path, report: CaseReport) -> AccessLog:
    """Return the access log of a case that was run. Raises UnsupportedError if there is none."""
    path = folder / f"{quote(report.case, safe=' ')}.npz"
    if not path.exists():
        raise UnsupportedError(
            f"the runtime {report.runtime!r} keeps no access log, so there is no graph; choose "
            "another runtime with -r",
            name="runtime",
            value=report.runtime,
        )
    return AccessLog.load(path)


class _OutputOnly(Listener):
    """A listener that prints what kernels print to standard error, and ignores events."""

    def output(self, text: str) -> None:
        log.relay(text)
