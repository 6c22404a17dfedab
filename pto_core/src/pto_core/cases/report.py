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
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

import pto_core.errors
from pto_core.errors import InternalError, PtoError

SCHEMA_VERSION = 1

Element = bool | int | float | complex | None
"""An element of an output, or None."""


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
    first_actual: Element
    first_expected: Element
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
    rtol: float | None = None
    """The tolerance of the case, with ``atol``; outputs may have been compared exactly."""
    atol: float | None = None
    exact_integers: bool | None = None
    """Whether integers must equal their reference."""
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
    api: str | None = None
    """The interface for which the C++ orchestration is written; None if it is in Python."""
    record: tuple[str, ...] = ()
    """What differs from the record that was run again, and whether its outputs do."""

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
        data: dict[str, Any] = to_plain(self)
        return data


def report_from_json(data: Mapping[str, Any]) -> CaseReport:
    """Rebuild a report from the result of :meth:`CaseReport.to_json`."""
    report: CaseReport = from_plain(CaseReport, data)
    return report


def error_to_json(error: PtoError) -> dict[str, Any]:
    """Return the class, message, exit code, notes (such as tracebacks) and fields of an error."""
    return {
        "type": type(error).__name__,
        "message": error.message,
        "exit_code": error.exit_code,
        "notes": list(getattr(error, "__notes__", ())),
        "fields": {name: to_plain(getattr(error, name)) for name in type(error).fields},
    }


def error_from_json(data: Mapping[str, Any]) -> PtoError:
    """Create an error, with its notes, from the result of :func:`error_to_json`."""
    kind = getattr(pto_core.errors, data["type"], InternalError)
    known = {name: value for name, value in data["fields"].items() if name in kind.fields}
    error: PtoError = kind(data["message"], **known)
    for note in data["notes"]:
        error.add_note(note)
    return error


def to_plain(value: Any) -> Any:
    """Return the JSON data of a value: of a dataclass, its members by name."""
    if isinstance(value, PtoError):
        return error_to_json(value)
    if is_dataclass(value) and not isinstance(value, type):
        return {member.name: to_plain(getattr(value, member.name)) for member in fields(value)}
    if isinstance(value, Mapping):
        return {str(name): to_plain(member) for name, member in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(member) for member in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if value is None or isinstance(value, str | int):
        return value
    return str(value)


def from_plain(kind: Any, data: Any) -> Any:
    """Rebuild a value of the type ``kind``, such as a dataclass, from its JSON data."""
    arguments = get_args(kind)
    if data is None:
        return None
    if kind == Element:
        return _number(data) if isinstance(data, str) else data
    if isinstance(kind, UnionType):  # a type or None
        return from_plain(arguments[0], data)
    if get_origin(kind) is tuple:
        return tuple(from_plain(arguments[0], item) for item in data)
    if is_dataclass(kind) and isinstance(kind, type):
        hints = get_type_hints(kind)
        return kind(**{name: from_plain(hints[name], value) for name, value in data.items()})
    if kind is PtoError:
        return error_from_json(data)
    return kind(data) if kind in (float, Path) else data


def _number(text: str) -> float | complex:
    try:
        return float(text)
    except ValueError:
        return complex(text)
