"""Run a case and compare its outputs with the reference.

CASE is a folder with golden.py and kernels/kernel_config.py. The case runs in a child process.
CASE can also be a file with scene tests, which runs as `python CASE` does, or a file of `pto
record`, whose code is executed: the run is repeated, and what differs is shown first.
Exit codes: 0 correct, 1 wrong result, 2 usage error, 3 build failed, 4 run failed, 5 backend,
runtime or transport not available. With --all every case runs and the highest code is returned.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from pto_core import log
from pto_core.cases.job import RECORD_SUFFIX, Job, locate
from pto_core.cases.report import CaseReport
from pto_core.cases.supervisor import Listener, supervise
from pto_core.cli.case_display import Display, PlainDisplay, make_display, with_notes
from pto_core.cli.run_folder import RunFolder, document, not_written
from pto_core.config import given
from pto_core.config.options import CHECK, DUMP_LEVELS, HAZARDS
from pto_core.errors import PtoError, UsageError
from pto_core.plugins import insight

SEED_HELP = "run deterministically: the same seed gives the same order of events"
_Group = argparse._ArgumentGroup


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``pto run``."""
    where, place, how = add_case_arguments(parser)
    which = where.add_mutually_exclusive_group()
    which.add_argument("--case", metavar="NAME", help="one of ALL_CASES; default: DEFAULT_CASE")
    which.add_argument("--all", action="store_true", help="every case")
    which.add_argument("--list", action="store_true", help="list the cases and run none")
    seeds = place.add_mutually_exclusive_group()
    seeds.add_argument("--seed", type=natural, metavar="N", help=SEED_HELP)
    seeds.add_argument(
        "--seeds",
        type=_positive,
        metavar="N",
        help="run under the seeds 0 to N-1 until one fails, and print the command to reproduce it",
    )
    how.add_argument("--repeat", type=_positive, default=1, metavar="N", help="run N times")
    how.add_argument("--skip-golden", action="store_true", help="do not compare with the reference")
    how.add_argument(
        "--no-explain",
        action="store_true",
        help="do not run a wrong case again to find the task that wrote the wrong element",
    )
    _add_file_options(parser)
    shown = parser.add_argument_group("what is shown").add_mutually_exclusive_group()
    shown.add_argument("-q", "--quiet", action="store_true", help="one line for each case")
    shown.add_argument("--silent", action="store_true", help="only errors")
    shown.add_argument("--json", action="store_true", help="one JSON object on standard output")
    _add_published_options(parser)


def add_case_arguments(parser: argparse.ArgumentParser) -> tuple[_Group, _Group, _Group]:
    """Declare the options that select a case, its place and its execution; return the groups."""
    parser.add_argument("path", nargs="?", type=Path, metavar="CASE", help="folder of the case")
    where = parser.add_argument_group("the case")
    where.add_argument("-k", "--kernels", type=Path, help="folder with kernel_config.py")
    where.add_argument("-g", "--golden", type=Path, help="golden.py")
    place = parser.add_argument_group("where it runs")
    place.add_argument("-p", "--platform", "--backend", metavar="NAME", help="backend")
    place.add_argument("-r", "--runtime", metavar="NAME", help="runtime variant")
    place.add_argument("-d", "--device", metavar="N", help="number of the device")
    how = parser.add_argument_group("execution")
    how.add_argument(
        "--hazards",
        choices=(*HAZARDS, CHECK),
        help="hazards that order two tasks, in runtimes that find dependencies; check: tasks that "
        "race fail the run",
    )
    how.add_argument(
        "--timeout", type=_time_limit, metavar="S", help="time limit of a case, in seconds"
    )
    return where, place, how


def natural(text: str) -> int:
    """Return the integer, at least 0, that the text states."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not an integer of at least 0")
    return int(text)


def _add_file_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("files that are written")
    group.add_argument("--graph", action="store_true", help="write the graph of each case")
    group.add_argument("--trace", action="store_true", help="trace the tasks of each case")
    group.add_argument(
        "--trace-level",
        type=int,
        choices=(1, 2, 3, 4),
        metavar="N",
        help="trace: 1 tasks, 2 also scheduling, 3 also waits, 4 also every dependency",
    )
    group.add_argument(
        "--trace-after",
        type=_seconds,
        metavar="S",
        help="trace: keep no records of the first S seconds of each run",
    )
    group.add_argument(
        "--trace-for",
        type=_seconds,
        metavar="S",
        help="trace: keep the records of S seconds of each run",
    )
    group.add_argument("--pmu", action="store_true", help="trace, and count cycles of kernels")
    group.add_argument(
        "--flight-recorder",
        action="store_true",
        help="write the last records of each thread if a case fails, crashes or takes too long",
    )
    group.add_argument(
        "--stats", action="store_true", help="write the counters of rings and scopes"
    )
    group.add_argument(
        "--dump",
        nargs="?",
        const="",
        metavar="SELECTOR",
        help="write the arrays of tasks: KERNEL#TASK:TENSOR@RUN or parts of it; default: all tasks",
    )
    group.add_argument(
        "--dump-level",
        choices=DUMP_LEVELS,
        help="dump the tasks that fail, the arrays after each task, or before and after it",
    )
    group.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="folder of these files, which gets a folder for each run, and index.html that shows "
        "all runs; default: out",
    )


# Options of the published runner that this command accepts and ignores, each with the reason.
_WITHOUT_EFFECT = {
    "commit": (
        "-c",
        "the tile library in PTO_ISA_ROOT is used; check out the commit in that folder",
    ),
    "enable_profiling": (
        "--enable-profiling",
        "every run measures times and cores; -v or --json shows them",
    ),
    "build": ("--build", "changed sources are always rebuilt"),
}


def _add_published_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("options of the published runner, without effect")
    group.add_argument(
        "-c", dest="commit", metavar="COMMIT", help="commit of the kernel tile library"
    )
    group.add_argument(
        "--enable-profiling", action="store_true", help="every run is measured; see -v and --json"
    )
    group.add_argument("--build", action="store_true", help="changed sources are always rebuilt")


def _warn_of_published_options(namespace: argparse.Namespace) -> None:
    for name, (option, why) in _WITHOUT_EFFECT.items():
        if getattr(namespace, name):
            log.get(__name__).warning("option", reason=f"{option} has no effect: {why}")


def run(namespace: argparse.Namespace) -> int:
    """Run the cases; return the highest exit code."""
    if not namespace.silent:
        _warn_of_published_options(namespace)
    if _has_scenes(namespace.path):
        return _run_scenes(namespace)
    display = _display(namespace)
    reports: list[CaseReport] = []
    try:
        with chosen_job(namespace, _job) as job, _run_folder(namespace, job) as folder:
            _supervise(namespace, job, _Observed(display, folder), folder, reports)
        is_quiet = namespace.quiet or namespace.silent or namespace.json
        if folder is not None and folder.has_page and not is_quiet:
            log.show(f"{folder.page} shows this run")
    except PtoError as error:
        if not (namespace.json or reports):
            raise
        result = document(reports, error)
        log.show(f"pto: error: {with_notes(error)}", "error")
    else:
        result = document(reports, None)
    finally:
        display.close()
    if namespace.json and not namespace.list:
        print(json.dumps(result, indent=2))
    exit_code: int = result["exit_code"]
    return exit_code


def _run_folder(
    namespace: argparse.Namespace, job: Job
) -> contextlib.AbstractContextManager[RunFolder | None]:
    """Make the folder of the files that are asked for, if any."""
    has_files = job.trace > 0 or job.stats or job.flight_recorder or job.dump is not None
    if namespace.out is not None and not (has_files or namespace.graph):
        raise UsageError(
            f"--out {namespace.out} names a folder, but no file is asked for; add --trace, "
            "--graph, --stats, --dump or --flight-recorder",
            name="out",
            value=str(namespace.out),
        )
    if namespace.list or not (has_files or namespace.graph):
        return contextlib.nullcontext()
    return RunFolder(namespace.out or Path("out"))


def _has_scenes(path: Path | None) -> bool:
    if path is None or path.suffix != ".py" or not path.is_file():
        return False
    return b"SceneTestCase" in path.read_bytes()


# The options of a file with scene tests, by those of this command.
_OF_SCENES = {
    "platform": "--platform",
    "device": "--device",
    "case": "--case",
    "log_level": "--log-level",
    "repeat": "--rounds",
    "skip_golden": "--skip-golden",
    "hazards": "--hazards",
}
_DEFAULTS = {"repeat": 1, "verbose": 0, "set": []}  # those that are not None or False


def _run_scenes(namespace: argparse.Namespace) -> int:
    """Run a file with scene tests as a command; return its exit code."""
    words = [sys.executable, str(namespace.path)]
    for name, value in vars(namespace).items():
        if value is None or value is False or value == _DEFAULTS.get(name):
            continue
        if name in _OF_SCENES:
            words += [_OF_SCENES[name]] if value is True else [_OF_SCENES[name], str(value)]
        elif name != "path" and name not in _WITHOUT_EFFECT:
            raise UsageError(
                f"--{name.replace('_', '-')} is for the folder of a case, and {namespace.path} is "
                f"a file with scene tests, which takes {', '.join(_OF_SCENES.values())}",
                name=name,
            )
    return subprocess.run(words, check=False).returncode


@contextlib.contextmanager
def chosen_job(
    namespace: argparse.Namespace, make: Callable[[argparse.Namespace], Job]
) -> Iterator[Job]:
    """Make the job of a run; for a record, in a temporary folder, where options have precedence.

    ``make`` returns the job that the options of a folder state.
    """
    if namespace.path is None or namespace.path.suffix != RECORD_SUFFIX:
        yield make(namespace)
        return
    path = namespace.path.absolute()
    is_every = getattr(namespace, "all", False)
    if namespace.kernels or namespace.golden or namespace.case or is_every:
        raise UsageError(
            f"{path} is the record of one case; omit --case, --all, --kernels and --golden",
            name="case",
        )
    with insight.unpacked_record(path) as (record, folder):
        files = {"kernels": folder / record.kernel_config, "golden": folder / record.golden}
        job = make(argparse.Namespace(**{**vars(namespace), "path": None, **files}))
        has_seed = job.seed is not None or job.seeds is not None
        yield replace(
            job,
            recorded=path,
            case=record.case,
            seed=job.seed if has_seed else record.seed,
            skip_golden=job.skip_golden or record.skip_golden,
            settings={"backend": record.backend, "runtime": record.runtime, **job.settings},
        )


def _supervise(
    namespace: argparse.Namespace,
    job: Job,
    listener: _Observed,
    out: RunFolder | None,
    reports: list[CaseReport],
) -> None:
    """Run the cases, add their reports, and write their graphs."""
    if out is None or not namespace.graph:
        job = job if out is None else replace(job, out=out.path)
        reports += supervise(job, listener, namespace.timeout)
        return
    insight.require()
    with tempfile.TemporaryDirectory(prefix="pto-log-") as name:
        folder = Path(name)
        job = replace(job, out=out.path, log_folder=folder)
        reports += supervise(job, listener, namespace.timeout)
        for report in reports:
            if report.tasks is None:
                continue
            graph = insight.TaskGraph(insight.load_log(folder, report))
            for ending in ("svg", "json"):
                try:
                    graph.save(out.path / f"{quote(report.case, safe=' ')}.{ending}")
                except OSError as error:
                    raise not_written(out.path, error) from error


def _display(namespace: argparse.Namespace) -> Display:
    if namespace.list:
        return _CaseList(as_json=namespace.json)
    if namespace.json:
        return _Quietly()
    return make_display(
        quiet=namespace.quiet, silent=namespace.silent, verbose=namespace.verbose > 0
    )


def job_of(namespace: argparse.Namespace, **settings: Any) -> Job:
    """Return the job that the options of one case state, with more settings that are not None."""
    files = locate(namespace.path, namespace.kernels, namespace.golden)
    options = {
        "backend": namespace.platform,
        "runtime": namespace.runtime,
        "device": namespace.device,
        "hazards": namespace.hazards,
        "log_level": namespace.log_level,
    }
    return Job(
        golden=files.golden,
        kernel_config=files.kernel_config,
        case=namespace.case,
        settings=given({**options, **settings}),
        set_=tuple(namespace.set),
        seed=namespace.seed,
    )


def _job(namespace: argparse.Namespace) -> Job:
    by_count = {0: None, 1: "info"}.get(namespace.verbose, "debug")
    job = job_of(
        namespace,
        trace_after_s=namespace.trace_after,
        trace_for_s=namespace.trace_for,
        log_level=namespace.log_level or ("error" if namespace.silent else by_count),
    )
    return replace(
        job,
        every=namespace.all,
        set_=(*(["enable_pmu=1"] if namespace.pmu else []), *namespace.set),
        repeat=namespace.repeat,
        skip_golden=namespace.skip_golden,
        seeds=namespace.seeds,
        list_only=namespace.list,
        explain=not namespace.no_explain,
        **_files_of(namespace),
    )


def _files_of(namespace: argparse.Namespace) -> dict[str, Any]:
    has_window = namespace.trace_after is not None or namespace.trace_for is not None
    is_traced = namespace.trace or namespace.pmu or has_window
    level = namespace.trace_level or (1 if is_traced else 0)
    dump = "" if namespace.dump is None and namespace.dump_level else namespace.dump
    return {
        "trace": level,
        "stats": namespace.stats,
        "flight_recorder": namespace.flight_recorder,
        "dump": dump,
        "dump_level": DUMP_LEVELS.index(namespace.dump_level or "all") + 1,
        "kernels": namespace.verbose > 0,
    }


class _Observed(Listener):
    """A listener that notifies observers of each case, and forwards every call to the display."""

    def __init__(self, display: Display, out: RunFolder | None) -> None:
        self._display = display
        self._out = out
        self._observers: Any = None
        self._info: Any = None

    def started(self) -> None:
        """Find the observers while the child starts."""
        from pto_core.plugins import load_observers

        self._display.started()
        self._observers = load_observers()
        for problem in self._observers.problems:
            log.show(f"pto: observer not used: {problem}", "warn")

    def event(self, event: Mapping[str, Any]) -> None:
        """Notify the observers of a case that starts."""
        if event["event"] == "case":
            from pto_core.interfaces.observer import CaseInfo

            names = ("backend", "runtime", "device")
            self._info = CaseInfo(
                name=event["case"],
                folder=Path(event["folder"]),
                **{name: event[name] for name in names},
            )
            self._observers.notify("pto_case_started", info=self._info)
        self._display.event(event)

    def output(self, text: str) -> None:
        """Show a line that the child printed."""
        self._display.output(text)
        if self._out is not None:
            self._out.log(text)

    def tick(self) -> None:
        """Refresh the display."""
        self._display.tick()

    def finished(self, report: CaseReport) -> None:
        """Notify the observers of a case that has ended."""
        self._display.finished(report)
        if self._out is not None:
            self._out.add(report)
        self._observers.notify(
            "pto_case_finished",
            info=self._info,
            exit_code=report.exit_code,
            seconds=report.wall,
        )


class _Quietly(Display):
    """A display that reserves standard output for JSON; kernels print to standard error instead."""

    def output(self, text: str) -> None:
        """Print the line."""
        log.relay(text)


class _CaseList(PlainDisplay):
    """A display that prints the names of the cases and marks the default one."""

    def __init__(self, *, as_json: bool) -> None:
        super().__init__(quiet=True, verbose=False)
        self._as_json = as_json

    def event(self, event: Mapping[str, Any]) -> None:
        """Print the list when the child has reported it."""
        if event["event"] != "listing":
            return
        if self._as_json:
            print(json.dumps({"cases": event["cases"], "default": event["default"]}))
            return
        for name in event["cases"]:
            print(f"{name} (default)" if name == event["default"] else name)


def _time_limit(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number of seconds")
    return seconds


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1
    if not 0 <= value < 1e6:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds")
    return value


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not an integer of at least 1")
    return int(text)
