"""Functions that run cases from Python."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pto_core._native import integer
from pto_core.cases.job import Job
from pto_core.cases.location import locate
from pto_core.cases.report import CaseReport
from pto_core.cases.supervisor import Listener, supervise
from pto_core.config import as_text, given
from pto_core.errors import UsageError
from pto_core.errors.values import as_path, check_seconds, shown


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
    return supervise(job, _Silence(), timeout_s)[0]


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
    return supervise(job, _Silence(), timeout_s)


def list_cases(path: str | Path) -> list[str]:
    """List the cases of the folder ``path``. Its ``golden.py`` is executed in a child process."""
    listener = _Silence()
    supervise(Job(**_files(path, None, None), list_only=True), listener)
    return listener.cases


class _Silence(Listener):
    """A listener that ignores every event."""

    def __init__(self) -> None:
        self.cases: list[str] = []

    def started(self) -> None:
        pass

    def event(self, event: Mapping[str, Any]) -> None:
        if event["event"] == "listing":
            self.cases = list(event["cases"])

    def output(self, text: str) -> None:
        pass

    def finished(self, report: CaseReport) -> None:
        pass

    def tick(self) -> None:
        pass


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
        raise UsageError(f"case is {shown(name)}; pass a text", name="case", value=name)
    return name


def _repeat(value: int) -> int:
    repeat = integer(value, 1, 2**31 - 1)
    if repeat is None:
        raise UsageError(
            f"repeat is {shown(value)}; expected at least 1", name="repeat", value=value
        )
    return repeat
