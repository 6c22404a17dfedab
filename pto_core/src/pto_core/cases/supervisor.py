"""Run cases from the parent: start the child, read its events, and explain an early exit.

The child writes events, one JSON object per line: ``listing`` (the cases), ``prepared`` (cache
folder), ``source`` (a build step), ``device`` (blocks, kernels), ``case`` (start of a case),
``phase``, ``seed`` (of a sweep), ``report`` (end of a case), ``failed`` (no case can be run),
``done``. Its standard output and standard error share another pipe. When :func:`supervise` returns
or raises, the child has exited, and its pipes and temporary files are removed.
"""

from __future__ import annotations

import contextlib
import glob
import json
import os
import re
import selectors
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pto_core.cases.activity import ActivityPage, RunningKernel
from pto_core.cases.child import STACK_SIGNAL
from pto_core.cases.endings import (
    ChildProgress,
    death_error,
    orchestration_death_error,
    seed_note,
    timeout_error,
)
from pto_core.cases.job import Job, locate
from pto_core.cases.report import (
    CaseReport,
    ProcessReport,
    error_from_json,
    report_from_json,
)
from pto_core.config import as_text, given
from pto_core.errors import PtoError
from pto_core.errors.values import as_path, check_seconds, invalid_value
from pto_core.interrupts import Interrupts
from pto_core.plugins import insight
from pto_core.toolchain.children import ProcessGroup

_TICK_S = 0.1
_STUCK_CHECK_S = 0.05
# time for the start of the child, added to the limit; the child imports the framework
_START_S = 60.0
_GRACE_S = 2.0
_GRACE_AT_LIMIT_S = 0.5  # used instead of _GRACE_S if the child has exceeded its time limit
_COMMAND = "from pto_core.cases.child import main; main()"


class Listener:
    """A listener for the events of a run, which ignores them; subclasses override methods.

    The methods run on the thread of :func:`supervise`.
    """

    def started(self) -> None:
        """Do slow preparation while a child starts; called once for each child."""

    def event(self, event: Mapping[str, Any]) -> None:
        """Handle one event of the child."""

    def output(self, text: str) -> None:
        """Handle complete lines that the child printed."""

    def finished(self, report: CaseReport) -> None:
        """Handle the report of a case as soon as the case has ended."""

    def tick(self) -> None:
        """Refresh the display; called about every 0.1 s."""


def run_case(
    path: str | Path | None = None,
    case: str | None = None,
    *,
    kernels: str | Path | None = None,
    golden: str | Path | None = None,
    backend: str | None = None,
    runtime: str | None = None,
    device: int | None = None,
    settings: Mapping[str, Any] | None = None,
    repeat: int = 1,
    skip_golden: bool = False,
    timeout_s: float | None = None,
) -> CaseReport:
    """Run one case of the folder ``path`` in a child process and compare its outputs.

    ``case`` is the name of a case in ``ALL_CASES``; None selects ``DEFAULT_CASE``. ``settings`` are
    configuration keys. The report states whether the case passed, and contains the error if it
    failed; ``report.check()`` raises that error. Raises UsageError, CompileError, PluginError or
    BackendUnavailableError if the case could not be started. A crash of a kernel does not affect
    the calling process.
    """
    job = Job(
        **_files(path, kernels, golden),
        case=_case(case),
        settings=_settings(settings, backend, runtime, device),
        repeat=_repeat(repeat),
        skip_golden=skip_golden,
    )
    check_seconds(timeout_s)
    return supervise(job, Listener(), timeout_s)[0]


def run_all_cases(
    path: str | Path,
    *,
    backend: str | None = None,
    runtime: str | None = None,
    device: int | None = None,
    settings: Mapping[str, Any] | None = None,
    timeout_s: float | None = None,
) -> list[CaseReport]:
    """Run every case of the folder ``path``; a failed case does not stop the others.

    The parameters are those of :func:`run_case`.
    """
    job = Job(
        **_files(path, None, None),
        every=True,
        settings=_settings(settings, backend, runtime, device),
    )
    check_seconds(timeout_s)
    return supervise(job, Listener(), timeout_s)


def list_cases(path: str | Path) -> list[str]:
    """List the cases of the folder ``path``. Its ``golden.py`` is executed in a child process."""
    listener = _CaseNames()
    supervise(Job(**_files(path, None, None), list_only=True), listener)
    return list(listener.cases)


class _CaseNames(Listener):
    cases: Sequence[str] = ()

    def event(self, event: Mapping[str, Any]) -> None:
        if event["event"] == "listing":
            self.cases = event["cases"]


def _files(
    path: str | Path | None, kernels: str | Path | None, golden: str | Path | None
) -> dict[str, Any]:
    def path_of(value: str | Path | None) -> Path | None:
        return None if value is None else as_path("the path of a case", value)

    files = locate(path_of(path), path_of(kernels), path_of(golden))
    return {"golden": files.golden, "kernel_config": files.kernel_config}


def _settings(
    settings: Mapping[str, Any] | None,
    backend: str | None,
    runtime: str | None,
    device: int | None,
) -> dict[str, Any]:
    chosen = {"backend": backend, "runtime": runtime, "device": device}
    named = {**given(settings), **given(chosen)}
    for key, value in named.items():
        as_text(key, value, "argument")
    return named


def _case(name: str | None) -> str | None:
    if not isinstance(name, str | None):
        raise invalid_value("case", name, "pass a text")
    return name


def _repeat(value: int) -> int:
    from pto_core._native import integer  # imports NumPy, which `pto run` does not need here

    repeat = integer(value, 1, 2**31 - 1)
    if repeat is None:
        raise invalid_value("repeat", value, "expected at least 1")
    return repeat


def supervise(job: Job, listener: Listener, timeout_s: float | None = None) -> list[CaseReport]:
    """Run the cases of ``job`` in a child; if it dies, run the other cases in another child.

    ``timeout_s`` is the limit of the elapsed time for each case, and for the build before the first
    case. Raises PtoError if no case could be started. An exception from a signal such as SIGINT
    propagates after the clean-up.
    """
    reports: list[CaseReport] = []
    doing, state = "starting", ""
    try:
        with Interrupts() as interrupts:
            while True:
                with ActivityPage() as page, Whereabouts() as whereabouts:
                    watch = _Watch(job, listener, timeout_s, page, whereabouts)
                    watch.follow(interrupts)
                doing, state = watch.doing, watch.device_state
                reports += watch.reports
                if interrupts.signal is not None or not watch.left:
                    return reports
                job = replace(job, only=tuple(watch.left))
    except KeyboardInterrupt:
        interrupt = KeyboardInterrupt(f"interrupted while {doing}")
        if state:
            interrupt.add_note(f"state when the run was interrupted:\n{state}")
        raise interrupt from None


class _Watch:
    """Runs and watches one child process from its start to its exit."""

    def __init__(
        self,
        job: Job,
        listener: Listener,
        timeout_s: float | None,
        page: ActivityPage,
        whereabouts: Whereabouts,
    ) -> None:
        self.reports: list[CaseReport] = []
        self.left: list[str] = []
        self.device_state = ""  # lines, at an interrupt or at the time limit
        self._job = job
        self._listener = listener
        self._timeout_s = timeout_s
        self._state = ChildProgress()
        self._started = time.monotonic()
        self._suspects: list[RunningKernel] | None = None
        self._expired = False
        self._has_reported = False
        self._place: str | None = None
        self._page = page
        self._whereabouts = whereabouts
        self._changes: int | None = None

    @property
    def doing(self) -> str:
        """The last activity of the child, as a phrase that messages insert after "while"."""
        return self._state.doing

    def follow(self, interrupts: Interrupts) -> None:
        """Run the child and handle its events until it has ended."""
        events_read, events_write = os.pipe2(os.O_CLOEXEC)
        output_read, output_write = os.pipe2(os.O_CLOEXEC)
        events, output = Lines(events_read), Lines(output_read)
        was_killed = False
        try:
            with ProcessGroup() as group:
                descriptors = (
                    events_write,
                    self._page.descriptor,
                    self._whereabouts.descriptor,
                )
                child = group.start(
                    (sys.executable, "-P", "-c", _COMMAND, *map(str, descriptors)),
                    stdin=subprocess.PIPE,
                    stdout=output_write,
                    pass_descriptors=descriptors,
                )
                with child:
                    os.close(events_write)
                    os.close(output_write)
                    events_write = output_write = -1
                    group.give_time(child)
                    may_finish = False
                    try:
                        self._send_job(child)
                        self._listener.started()
                        self._listen(child, events, output, interrupts)
                        may_finish = not self._expired and interrupts.signal is None
                    finally:
                        self._end(child, may_finish=may_finish)
                        was_killed = child.returncode < 0
            self._drain(events, output)
        finally:
            if was_killed:
                self._sweep()
            for descriptor in (events_read, output_read, events_write, output_write):
                if descriptor >= 0:
                    os.close(descriptor)
        if interrupts.signal is None:
            self._conclude(child.returncode)

    def _send_job(self, child: subprocess.Popen[bytes]) -> None:
        assert child.stdin is not None
        try:
            child.stdin.write(self._job.to_json().encode())
            child.stdin.close()
        except BrokenPipeError:
            pass  # the child has exited; its exit status explains the reason

    def _listen(
        self,
        child: subprocess.Popen[bytes],
        events: Lines,
        output: Lines,
        interrupts: Interrupts,
    ) -> None:
        """Handle events and output until the child exits, even if descendants keep pipes open."""
        with selectors.DefaultSelector() as selector:
            selector.register(events.descriptor, selectors.EVENT_READ, self._take_event)
            selector.register(output.descriptor, selectors.EVENT_READ, self._listener.output)
            if interrupts.descriptor >= 0:
                selector.register(interrupts.descriptor, selectors.EVENT_READ)
            sources = {events.descriptor: events, output.descriptor: output}
            while events.is_open and child.poll() is None:
                if interrupts.signal is not None:
                    self.device_state = "\n".join(self._page.state())
                    return
                for ready, _ in selector.select(self._patience()):
                    source = sources.get(ready.fd)
                    if source is None:
                        continue
                    for line in source.read():
                        ready.data(line)
                    if not source.is_open:
                        selector.unregister(ready.fd)
                self._listener.tick()
                if self._has_expired():
                    self._locate(child)
                    return

    def _patience(self) -> float:
        if self._timeout_s is None:
            return _TICK_S
        if self._suspects is not None:
            return _STUCK_CHECK_S
        return min(_TICK_S, max(-self._over_s(self._timeout_s), 0.0))

    def _over_s(self, timeout_s: float) -> float:
        """Return the seconds by which the current limit is exceeded; negative before the limit."""
        limit_s = timeout_s if self._has_reported else timeout_s + _START_S
        return time.monotonic() - self._started - limit_s

    def _locate(self, child: subprocess.Popen[bytes]) -> None:
        """Find the line of the user's Python code that hangs, unless a kernel is stuck."""
        self.device_state = "\n".join(self._page.state())
        if self._suspects:
            return
        folders = (self._job.golden.parent, self._job.kernel_config.parent)
        self._place = self._whereabouts.ask(child, folders)
        changes = self._page.changes()
        self._state.tasks_ran = changes is None or changes != self._changes

    def _has_expired(self) -> bool:
        """Return whether the limit has expired. Kernels that run then and later are stuck."""
        if self._timeout_s is None or self._state.finished:
            return False
        over = self._over_s(self._timeout_s)
        if over < 0:
            self._suspects = None
            return False
        if self._suspects is None:
            self._suspects = self._page.running()
            return False
        if over < _STUCK_CHECK_S:
            return False
        self._suspects = [kernel for kernel in self._page.running() if kernel in self._suspects]
        self._expired = True
        return True

    def _end(self, child: subprocess.Popen[bytes], *, may_finish: bool) -> None:
        """Wait a short time for the child to clean up, unless a kernel is stuck; then kill it."""
        stuck = self._expired and bool(self._suspects)
        if child.poll() is None and not stuck:
            if not may_finish:
                child.terminate()
            try:
                child.wait(_GRACE_AT_LIMIT_S if self._expired else _GRACE_S)
                return
            except subprocess.TimeoutExpired:
                pass
        if child.poll() is None:
            child.kill()
            child.wait()

    def _sweep(self) -> None:
        """Remove the files that a killed child left in the cache."""
        if self._state.cache_dir is not None:
            from pto_core.toolchain.cache import ArtefactCache

            ArtefactCache(self._state.cache_dir).sweep()

    def _drain(self, events: Lines, output: Lines) -> None:
        """Read the data that is still in the pipes."""
        for line in events.rest():
            self._take_event(line)
        for line in output.rest():
            self._listener.output(line)

    def _take_event(self, line: str) -> None:
        try:
            event = json.loads(line)
        except ValueError:
            return  # a killed child may leave an incomplete line
        state = self._state
        if not self._has_reported:
            self._has_reported = True
            # Start the time limit at the first event, because the time before it was spent in the
            # framework, not in user files.
            self._started = time.monotonic()
        match event["event"]:
            case "listing":
                state.cases = event["run"]
            case "prepared":
                state.cache_dir = Path(event["cache_dir"])
            case "device":
                state.kernels = {int(key): name for key, name in event["kernels"].items()}
                state.blocks = event["blocks"]
            case "case":
                state.case = event
                self._started = time.monotonic()
                self._suspects = None
            case "seed":
                state.seed = event["seed"]
            case "phase":
                state.phase = event["phase"]
                self._changes = self._page.changes()
            case "report":
                self._finish(report_from_json(event["report"]))
            case "failed":
                state.failure = error_from_json(event["error"])
            case "done":
                state.finished = True
        self._listener.event(event)

    def _finish(self, report: CaseReport) -> None:
        self.reports.append(report)
        self._state.case = None
        self._listener.finished(report)

    def _conclude(self, code: int) -> None:
        """Explain an unexpected exit of the child, and record which cases remain."""
        state = self._state
        if state.failure is not None:
            raise state.failure
        in_case = state.case is not None
        if state.case is not None:
            self._finish(self._report(state.case, self._explain(code)))
        over = {report.case for report in self.reports}
        self.left = [case for case in state.cases if case not in over]
        # If the child died between two cases, the caller starts another child for the remaining
        # cases. If it died before the first case or after the last case, the whole run fails.
        if not (in_case or state.finished or (over and self.left)):
            raise self._explain(code)

    def _report(self, case: Mapping[str, Any], error: PtoError) -> CaseReport:
        seed = self._state.seed
        if seed is not None:
            error.add_note(seed_note(self._job, case["case"], seed))
        return CaseReport(
            case=case["case"],
            folder=case["folder"],
            backend=case["backend"],
            runtime=case["runtime"],
            device=case["device"],
            process=case["process"] and ProcessReport(**case["process"]),
            passed=False,
            exit_code=error.exit_code,
            wall=time.monotonic() - self._started,
            errors=(error,),
            files=(*self._recover_flight(case, error), *self._recover_dumps(case, error)),
            seeds=None if seed is None else seed + 1,
            failing_seed=seed,
        )

    def _recover_flight(self, case: Mapping[str, Any], error: PtoError) -> tuple[str, ...]:
        """Write the last records of a dead child as a trace; return the paths of the files."""
        from pto_core.device.tracing import flight_file

        prefix = self._job.file_prefix(case["case"])
        if prefix is None or not flight_file(prefix).exists():
            return ()
        try:
            last = insight.read_flight(flight_file(prefix), case["backend"], case["runtime"])
            files = insight.write_trace(last, prefix)
            flight_file(prefix).unlink()
        except (OSError, PtoError) as problem:
            error.add_note(f"the last records of the run were not written: {problem}")
            return ()
        error.add_note(f"the last records of each thread are in {files[0]}")
        return tuple(map(str, files))

    def _recover_dumps(self, case: Mapping[str, Any], error: PtoError) -> tuple[str, ...]:
        """Convert the dump of a dead child; return the folders with its files."""
        prefix = self._job.file_prefix(case["case"])
        if prefix is None or self._job.dump is None:
            return ()
        found = []
        for folder in sorted(prefix.parent.glob(f"{glob.escape(prefix.name)}.device*.run*")):
            try:
                found += [str(folder)] if insight.recover(folder) else []
            except (OSError, PtoError) as problem:
                error.add_note(f"the dump in {folder} was not converted: {problem}")
        return tuple(found)

    def _explain(self, code: int) -> PtoError:
        if self._expired:
            assert self._timeout_s is not None, "without a limit, no limit can expire"
            suspects = self._suspects or []
            error = timeout_error(self._state, self._timeout_s, suspects, self._place)
            if self.device_state:
                error.add_note(f"state at the time limit:\n{self.device_state}")
            return error
        if self._page.has_orchestration_crashed():
            return orchestration_death_error(code)
        return death_error(self._state, code, self._page.running())


# The maximum number of reads in :meth:`Lines.rest`. That many reads empty a full pipe. Data that is
# written later is ignored.
_LAST_READS = 64


class Lines:
    """Reads complete lines from a pipe and, at its end, an incomplete last line."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.is_open = True
        self._partial = b""

    def read(self) -> list[str]:
        """Read from the pipe once and return the complete lines; blocks while the pipe is empty."""
        chunk = os.read(self.descriptor, 1 << 16)
        if not chunk:
            self.is_open = False
            rest, self._partial = self._partial, b""
            return [rest.decode(errors="replace")] if rest else []
        *lines, self._partial = (self._partial + chunk).split(b"\n")
        return [line.decode(errors="replace") for line in lines]

    def rest(self) -> list[str]:
        """Read the available data, including an incomplete last line; never blocks.

        Waiting for the end of the pipe could take forever, because another process may keep its
        write end open.
        """
        os.set_blocking(self.descriptor, False)
        lines: list[str] = []
        with contextlib.suppress(BlockingIOError):
            for _ in range(_LAST_READS):
                if not self.is_open:
                    break
                lines += self.read()
        left, self._partial = self._partial, b""
        return [*lines, left.decode(errors="replace")] if left else lines


_PATIENCE_S = 2.0  # time limit for the stack of the child; long, because the machine may be busy
_STEP_S = 0.01
_MOST_BYTES = 1 << 16
_FRAME = re.compile(r'^  File "(.*)", line (\d+) in (.*)$', re.MULTILINE)


class Whereabouts:
    """An anonymous file to which a child writes its Python stack on request.

    The child inherits ``descriptor`` and passes it to :func:`pto_core.cases.child.note_when_asked`.
    """

    def __init__(self) -> None:
        self.descriptor = os.memfd_create("pto-whereabouts", os.MFD_CLOEXEC)

    def ask(self, child: subprocess.Popen[bytes], folders: tuple[Path, ...]) -> str | None:
        """Return ``file:line in function`` of the innermost frame in ``folders``, if any."""
        if child.poll() is not None:
            return None
        child.send_signal(STACK_SIGNAL)
        until = time.monotonic() + _PATIENCE_S
        before, text = None, ""
        while time.monotonic() < until and child.poll() is None and (not text or text != before):
            time.sleep(_STEP_S)
            before, text = text, self._text()
        for file, line, function in _FRAME.findall(text):
            if any(folder in Path(file).parents for folder in folders):
                return f"{file}:{line} in {function}"
        return None

    def _text(self) -> str:
        return os.pread(self.descriptor, _MOST_BYTES, 0).decode(errors="replace")

    def __enter__(self) -> Whereabouts:
        return self

    def __exit__(self, *raised: object) -> None:
        os.close(self.descriptor)
