"""Run a case twice, and find the first task whose output differs between both runs.

The words after --against state what the second run changes: options of this command, such as
`-r host_build_graph`, `--seed 3`, `--case NAME` or `--set cxx=clang++`, or another folder with a
case, such as an older copy. Each case can also be a file of `pto record`, whose code is executed.
Runs on the simulator are deterministic. An output differs if it does not have the tolerance of the
case. The arrays of the task are written for `pto dump` and `pto replay`. Exit codes: 0 no task
differs, 1 a task differs or was not compared, and those of `pto run` if a run failed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shlex
import shutil
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from pto_core.cases.job import RECORD_SUFFIX, Job
from pto_core.cases.report import CaseReport, OutputReport, to_plain
from pto_core.cli.run import SEED_HELP, chosen_job, job_of
from pto_core.cli.run_folder import not_written
from pto_core.errors import PtoError, UnsupportedError, UsageError
from pto_core.output_files import next_run_folder
from pto_insight.commands.logged_case import (
    add_one_case_arguments,
    load_log,
    log_folder,
    run_job,
)
from pto_insight.dumps.bisection import Bisection, Difference, Rule, Side, Writer, calls_of
from pto_insight.dumps.recording import LEVEL_ALL, LEVEL_HASHES, take_hashes
from pto_insight.dumps.replay import check_replayable
from pto_insight.dumps.task_dump import TaskDump
from pto_insight.dumps.text import checked_dtype
from pto_insight.graphs import AccessLog, TaskGraph

SCHEMA_VERSION = 1
_SEED_HELP = f"{SEED_HELP}; default: 0 on the simulator"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``pto bisect``."""
    add_one_case_arguments(parser, _SEED_HELP)
    result = parser.add_argument_group("the result")
    result.add_argument(
        "--dtype", metavar="TYPE", help="type of the arrays that are known as bytes only"
    )
    result.add_argument(
        "--out",
        type=Path,
        default=Path("bisect"),
        metavar="DIR",
        help="the arrays of the task are in DIR/1, DIR/2, ...; default: bisect",
    )
    result.add_argument("--json", action="store_true", help="one JSON object on standard output")
    parser.add_argument(
        "--against",
        nargs=argparse.REMAINDER,
        default=[],
        help="what the second run changes: options or another case; the last option",
    )


class _OtherParser(argparse.ArgumentParser):
    """A parser of the words after ``--against``."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"after --against: {message}", name="against")


def run(namespace: argparse.Namespace) -> int:
    """Print the first task that differs."""
    dtype = checked_dtype(namespace.dtype)
    other = _other(namespace)
    name, words = str(namespace.path or namespace.golden), shlex.join(namespace.against)
    with chosen_job(namespace, _job) as job, chosen_job(other, _job) as other_job:
        try:
            out = next_run_folder(namespace.out.absolute())
        except OSError as error:
            raise not_written(namespace.out, error) from error
        first, rule = _side_of(f"A ({name})", job, namespace.timeout, out / "a", dtype)
        second, _ = _side_of(f"B ({words})", other_job, other.timeout, out / "b", dtype)
        bisection = Bisection(first, second, rule)
        found = bisection.find()
    if found is None:
        shutil.rmtree(out, ignore_errors=True)
    left = len(bisection.differing) - len(bisection.within) if found is None else 0
    code = 1 if found or left or not bisection.is_complete else 0
    if namespace.json:
        print(_json(first, second, bisection, found, code))
        return code
    lines = _lines(first, second, bisection, found, rule)
    if found and (file := _replayable(found.files)):
        option = " --gdb" if job.recorded is None else ""  # the sources of a record are removed
        lines.append(f"next: pto replay {shlex.quote(file)}{option}")
    print("\n".join(lines))
    return code


def _replayable(files: Iterable[str]) -> str | None:
    for file in files:
        with contextlib.suppress(PtoError):
            check_replayable(TaskDump.read(Path(file)), Path(file))
            return file
    return None


def _job(namespace: argparse.Namespace) -> Job:
    job = job_of(namespace)
    if any(text.partition("=")[0].strip() == "sim.seed" for text in job.set_):
        raise UsageError("pto bisect sets sim.seed; choose the seed with --seed", name="sim.seed")
    return job


def _other(namespace: argparse.Namespace) -> argparse.Namespace:
    """Return the options of the second run: those of the first, and the changes."""
    if not namespace.against:
        raise UsageError(
            "--against is missing; end the command with --against and what the second run changes, "
            "such as --against -r host_build_graph, or --against FOLDER",
            name="against",
        )
    parser = _OtherParser(prog="pto bisect CASE --against", allow_abbrev=False)
    add_one_case_arguments(parser, _SEED_HELP)
    parser.add_argument("--set", action="append", default=[])
    given = vars(parser.parse_args(namespace.against))
    changes = {name: value for name, value in given.items() if value not in (None, [])}
    if "path" in changes:  # another folder has its own files
        changes = {"kernels": None, "golden": None} | changes
        if changes["path"].suffix == RECORD_SUFFIX:  # it has one case
            changes.setdefault("case", None)
    changes["set"] = [*namespace.set, *given["set"]]
    return argparse.Namespace(**{**vars(namespace), **changes})


def _side_of(
    name: str, job: Job, timeout_s: float | None, folder: Path, dtype: str | None
) -> tuple[Side, Rule]:
    """Run a job with hashes; return its side, and the tolerance of its case. Raises PtoError."""
    folder.mkdir()
    has_seed = job.seed is not None
    job = replace(job, seed=job.seed or 0, skip_golden=True, out=folder)

    def run_dumped(selected: str, level: int) -> tuple[CaseReport, AccessLog]:
        nonlocal job
        with log_folder() as logs:
            dumped = replace(job, dump=selected, dump_level=level, log_folder=logs)
            try:
                report = run_job(dumped, timeout_s)
                return report, load_log(logs, report)
            except PtoError as error:
                is_of_seed = isinstance(error, UnsupportedError) and error.name == "--seed"
                if has_seed or not is_of_seed:
                    error.add_note(f"this is the run {name}")
                    raise
        job = replace(job, seed=None)  # the backend has no deterministic mode
        return run_dumped(selected, level)

    report, log = run_dumped("", LEVEL_HASHES)
    calls = calls_of(log, take_hashes(Path(report.files[0])))
    if not calls:
        raise UsageError(
            f"no task of the run {name} has an output, so there is nothing to compare", name="case"
        )

    def dump(tasks: list[int]) -> dict[int, tuple[Path, TaskDump]]:
        # without a seed, another block of a task may end last
        least = 0 if job.seed is None else -1
        selected = ",".join(f"#id{one}" for task in tasks for one in calls[task].ids[least:])
        report, log = run_dumped(selected, LEVEL_ALL)
        files = list(Path(report.files[0]).glob("*.npz")) if report.files else []
        dumps = [(path, TaskDump.read(path)) for path in files]
        found = {}
        for task in tasks:
            of_call = [one for one in dumps if one[1].id in calls[task].ids]
            if not of_call:
                raise UsageError(
                    f"the arrays of {log.label(task)} of the run {name} were not kept; the warning "
                    "of its dump states why",
                    name="dump_limit_bytes",
                )
            found[task] = max(of_call, key=lambda one: one[1].ended)
        return found

    assert report.rtol is not None, "a case that ran has a tolerance"
    assert report.atol is not None, "a case that ran has a tolerance"
    rule = Rule(report.rtol, report.atol, bool(report.exact_integers), dtype)
    return Side(name, TaskGraph(log), calls, dump), rule


def _lines(
    first: Side, second: Side, bisection: Bisection, found: Difference | None, rule: Rule
) -> list[str]:
    lines = _difference_lines(found, bisection) if found else []
    within, differing = len(bisection.within), len(bisection.differing)
    tolerance = f"the tolerance, rtol {rule.rtol:g} and atol {rule.atol:g}"
    nothing = "no difference" + " in the tasks that were compared" * (not bisection.is_complete)
    if found is None and not differing:
        lines.append(f"{nothing}: {bisection.equal:,} tasks have equal outputs")
    elif found is None and within == differing:
        lines.append(f"{nothing}: {within:,} tasks have other bits, all within {tolerance}")
    elif found is None:
        lines.append(
            f"the first {within:,} of {differing:,} tasks that have other bits are within "
            f"{tolerance}; the others were not compared"
        )
    else:
        before = f"; the {within:,} before it are within {tolerance}" if within else ""
        lines.append(f"{differing:,} of {len(bisection.pairs):,} tasks have other bits{before}")
    lists = (
        ("not compared, because outputs have other sizes", first, bisection.resized),
        (
            "not compared, because an output differed before the call, or one run does not have it",
            first,
            [] if found else bisection.skipped,
        ),
        (f"only in {first.name}", first, bisection.alone[0]),
        (f"only in {second.name}", second, bisection.alone[1]),
    )
    for title, side, tasks in lists:
        if tasks:
            task = side.graph.task(tasks[0])
            lines.append(
                f"{title}: {len(tasks):,} tasks, first {task.label}  {task.where}".rstrip()
            )
    return lines


def _difference_lines(found: Difference, bisection: Bisection) -> list[str]:
    lines = [f"the first task that differs is {found.task}  {found.where}".rstrip()]
    lines += [f"  {_change(output)}" for output in found.outputs]
    for one in found.inputs:
        writers = f", written by {_writers(one.writers)}" if one.writers else ""
        lines.append(f"  {one.argument}: {one.name} is {one.state} before the call{writers}")
    if found.waits_for:
        lines.append(f"  it waits for {_writers(found.waits_for)}")
    is_certain = bisection.is_complete and found.blocks == 1
    if is_certain and any(one.state == "different" for one in found.inputs):
        lines.append(
            "  no earlier task differs: the arguments of the runs differ, or nothing orders this "
            "task and the one that writes its input; see pto check"
        )
    return lines


def _change(output: OutputReport) -> str:
    place = ", ".join(map(str, output.first_index or ()))
    return (
        f"{output.name}: {output.mismatches:,} of {output.total:,} elements; first at [{place}]: "
        f"{output.first_expected} against {output.first_actual}; largest difference "
        f"{output.max_error:g}"
    )


def _writers(writers: tuple[Writer, ...]) -> str:
    return ", ".join(
        f"{one.task}{' of ' * bool(one.place)}{one.place} ({one.state})"
        + (f"  {one.where}" if one.where else "")
        for one in writers
    )


def _json(
    first: Side, second: Side, bisection: Bisection, found: Difference | None, code: int
) -> str:
    def labels(side: Side, tasks: list[int]) -> list[str]:
        return [side.graph.log.label(task) for task in tasks]

    document: dict[str, Any] = {
        "version": SCHEMA_VERSION,
        "exit_code": code,
        "tasks": len(bisection.pairs),
        "other_bits": len(bisection.differing),
        "within_tolerance": len(bisection.within),
        "resized": labels(first, bisection.resized),
        "not_compared": labels(first, bisection.skipped),
        "only_in_a": labels(first, bisection.alone[0]),
        "only_in_b": labels(second, bisection.alone[1]),
        "difference": to_plain(found),
    }
    return json.dumps(document, indent=2)
