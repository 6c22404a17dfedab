"""The report of a case: attributes for programs, JSON for other tools.

The JSON keys are the names of the dataclass fields. While ``SCHEMA_VERSION`` stays the same, keys
may be added, but no key changes its meaning. Times are in seconds, sizes in bytes. A number that is
not finite becomes the text ``"inf"``, ``"-inf"`` or ``"nan"``, and a complex number becomes a text
such as ``"(1+2j)"``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

import pto_core.errors
from pto_core.errors import InternalError, PtoError

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class OutputReport:
    """The comparison of one output. The ``first_`` members are None if all elements are correct."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    total: int
    mismatches: int
    max_error: float
    max_error_index: tuple[int, ...] | None
    first_index: tuple[int, ...] | None
    first_actual: Any
    first_expected: Any
    rtol: float
    atol: float


@dataclass(frozen=True)
class CoreShare:
    """The use of the cores of one type: ``used`` of ``total`` cores ran a task.

    ``busy`` is the time in kernels divided by the time of all ``total`` cores, from 0 to 1.
    ``dispatches`` lists the number of tasks that each core received, in the order of the cores.
    """

    core_type: str
    total: int
    used: int
    tasks: int
    busy: float
    dispatches: tuple[int, ...] = ()


@dataclass(frozen=True)
class RunTimes:
    """The times of one repetition: building the graph, running its tasks, and copying data."""

    build: float
    run: float
    copy: float


@dataclass(frozen=True)
class Copies:
    """The copies between host and device."""

    copies_in: int
    copies_out: int
    bytes_in: int
    bytes_out: int


@dataclass(frozen=True)
class KernelTimes:
    """The tasks of one kernel in all runs of a case; times in seconds.

    ``gb_per_s``: the bytes that the arguments declare, divided by ``total``; None if not known.
    """

    name: str
    tasks: int
    total: float
    mean: float
    p50: float
    p99: float
    max: float
    cores: int
    gb_per_s: float | None


@dataclass(frozen=True)
class ProcessReport:
    """The process on the device, as :class:`~pto_core.device.DeviceProcess` describes it."""

    label: str
    number: int
    machine: int


@dataclass(frozen=True)
class CaseReport:
    """All repetitions of a case; ``build``, ``run`` and ``copy`` belong to the fastest repetition.

    ``wall`` is the time of the whole case in the child. It includes ``compile`` (0 except for the
    first case), inputs, runs, ``reference`` and comparison. If the case fails early, the unknown
    members from ``tasks`` on are None or empty.
    """

    case: str
    folder: str
    backend: str
    runtime: str
    device: int
    passed: bool
    exit_code: int
    wall: float = 0.0
    compile: float = 0.0
    reference: float = 0.0
    build: float | None = None
    run: float | None = None
    copy: float | None = None
    repeats: tuple[RunTimes, ...] = ()
    tasks: int | None = None
    cores: tuple[CoreShare, ...] = ()
    copies: Copies | None = None
    peak_bytes: int | None = None
    trace_hash: str | None = None
    outputs: tuple[OutputReport, ...] = ()
    compared: bool = False
    statistics: Mapping[str, int] = field(default_factory=dict)
    errors: tuple[PtoError, ...] = ()
    seeds: int | None = None
    """The number of seeds that were run, including a failed seed; None if the case has no sweep."""
    failing_seed: int | None = None
    traces: int | None = None
    """The number of different execution traces in the sweep."""
    kernels: tuple[KernelTimes, ...] = ()
    """The times of each kernel, if the runs were traced; the longest total first."""
    files: tuple[str, ...] = ()
    """The files that the diagnostics wrote."""
    process: ProcessReport | None = None
    """The process on the device that ran the case; None if it ran in the host process."""

    @property
    def max_error(self) -> float | None:
        """The largest error of all outputs; None if no output was compared."""
        return max((output.max_error for output in self.outputs), default=None)

    def check(self) -> CaseReport:
        """Return the report itself if the case passed; otherwise raise its first error."""
        if self.errors:
            raise self.errors[0]
        return self

    def to_json(self) -> dict[str, Any]:
        """Return the data that ``pto run --json`` prints for the case."""
        plain: dict[str, Any] = _plain(self)
        return plain


def report_from_json(data: Mapping[str, Any]) -> CaseReport:
    """Rebuild a report from the result of :meth:`CaseReport.to_json`."""
    values = dict(data)
    values["errors"] = tuple(error_from_json(error) for error in data["errors"])
    values["outputs"] = tuple(_output(output) for output in data["outputs"])
    values["cores"] = tuple(_share(share) for share in data["cores"])
    values["repeats"] = tuple(RunTimes(**times) for times in data["repeats"])
    values["files"] = tuple(data["files"])
    values["kernels"] = tuple(KernelTimes(**kernel) for kernel in data["kernels"])
    values["copies"] = Copies(**data["copies"]) if data["copies"] else None
    values["process"] = ProcessReport(**data["process"]) if data["process"] else None
    return CaseReport(**values)


def error_to_json(error: PtoError) -> dict[str, Any]:
    """Return the class, message, exit code, notes (such as tracebacks) and fields of an error."""
    return {
        "type": type(error).__name__,
        "message": error.message,
        "exit_code": error.exit_code,
        "notes": list(getattr(error, "__notes__", ())),
        "fields": {name: _plain(getattr(error, name)) for name in type(error).fields},
    }


def error_from_json(data: Mapping[str, Any]) -> PtoError:
    """Create an error, with its notes, from the result of :func:`error_to_json`."""
    kind = getattr(pto_core.errors, data["type"], InternalError)
    known = {name: value for name, value in data["fields"].items() if name in kind.fields}
    error: PtoError = kind(data["message"], **known)
    for note in data["notes"]:
        error.add_note(note)
    return error


def _share(data: Mapping[str, Any]) -> CoreShare:
    return CoreShare(**{**data, "dispatches": tuple(data["dispatches"])})


def _output(data: Mapping[str, Any]) -> OutputReport:
    values = dict(data)
    for name in ("shape", "max_error_index", "first_index"):
        values[name] = None if data[name] is None else tuple(data[name])
    for name in ("max_error", "first_actual", "first_expected"):
        if isinstance(data[name], str):
            values[name] = _number(data[name])
    return OutputReport(**values)


def _number(text: str) -> float | complex:
    try:
        return float(text)
    except ValueError:
        return complex(text)


def _plain(value: Any) -> Any:
    if isinstance(value, PtoError):
        return error_to_json(value)
    if is_dataclass(value) and not isinstance(value, type):
        return {member.name: _plain(getattr(value, member.name)) for member in fields(value)}
    if isinstance(value, Mapping):
        return {str(name): _plain(member) for name, member in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(member) for member in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if value is None or isinstance(value, str | int):
        return value
    return str(value)
