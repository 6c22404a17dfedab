"""The default configuration of structlog, and messages of commands.

::

    pto_core.log.get(__name__).warning("compiler is slow", source=str(path), seconds=0.8)

If the program calls ``structlog.configure``, its configuration replaces this one. Context of
``structlog.contextvars`` is part of each event. structlog is imported with the first message that
is not filtered out by the level, because its import takes a quarter of the start of an agent. No
event is logged for single tasks. Commands write messages that are not events with :func:`show` and
:func:`relay`, which use the configured format.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from typing import TextIO

_SEVERITY = {"error": 40, "warn": 30, "info": 20, "debug": 10}


@dataclass
class _Output:
    """The log settings of this process. There is one log, because there is one standard error."""

    least: int = _SEVERITY["warn"]
    as_json: bool = False


_output = _Output()


def configure(config: Mapping[str, Any]) -> None:
    """Set level and format of the default configuration to ``log_level`` and ``log_format``."""
    _output.least = _SEVERITY[config["log_level"]]
    _output.as_json = config["log_format"] == "json"


def is_json() -> bool:
    """Return whether the messages of this process are JSON lines."""
    return _output.as_json


def show(text: str, level: str = "info") -> None:
    """Write a message to the user to standard error, as text or as a JSON line.

    The message is shown at every log level. Commands use this function instead of ``print``,
    because with JSON lines standard error may contain nothing else.
    """
    if _output.as_json:
        getattr(_default("pto", 0), level)("message", text=text)
    else:
        _print(text)


def relay(line: str) -> None:
    """Write a line that another process printed; a JSON log line is written unchanged."""
    if _output.as_json and _is_record(line):
        _print(line)
    else:
        show(line)


def get(name: str) -> Any:
    """Return a structlog logger whose events contain the name of a module.

    The configuration is that of the program if it has called ``structlog.configure``. Otherwise it
    is the default one: the settings ``log_level`` and ``log_format``, to standard error.
    """
    return _imported(name) if "structlog" in sys.modules else _Deferred(name)


@dataclass(frozen=True)
class _Deferred:
    """A logger that ignores filtered messages without structlog, if no module has imported it."""

    name: str

    def __getattr__(self, method: str) -> Any:
        level = method.replace("warning", "warn")
        if "structlog" not in sys.modules and _SEVERITY.get(level, _output.least) < _output.least:
            return _ignore
        return getattr(_imported(self.name), method)


def _ignore(*_: object, **__: object) -> None:
    """Do nothing: the message is below the level."""


def _imported(name: str) -> Any:
    import structlog

    if structlog.is_configured():
        return structlog.get_logger(name).bind(logger=name)
    return _default(name, _output.least)


@dataclass
class _Repeated:
    """The occurrences of an event since its last line."""

    count: int = 0
    values: dict[str, Any] = field(default_factory=dict)
    next_s: float = 0.0


class RareWarnings:
    """Warnings about peers, at most one line for each event in ``period_s`` seconds.

    A line has the values of the last occurrence, and the number of occurrences since the line
    before it.
    """

    def __init__(
        self, name: str, period_s: float = 10.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._name = name
        self._period_s = period_s
        self._clock = clock
        self._events: dict[str, _Repeated] = {}

    def add(self, event: str, **values: Any) -> None:
        """Count an occurrence of an event; write the line if it is due."""
        repeated = self._events.setdefault(event, _Repeated())
        repeated.count += 1
        repeated.values = values
        self.write()

    def write(self) -> None:
        """Write the lines that are due. Call this regularly."""
        for event, repeated in self._events.items():
            now = self._clock()
            if repeated.count and now >= repeated.next_s:
                get(self._name).warning(event, **repeated.values, count=repeated.count)
                repeated.count, repeated.next_s = 0, now + self._period_s


def _is_record(line: str) -> bool:
    try:
        record = json.loads(line)
    except ValueError:
        return False
    return isinstance(record, dict) and {"event", "logger", "level", "timestamp"} <= record.keys()


def _default(name: str, least: int) -> Any:
    import structlog
    from structlog import processors

    render: list[Any] = [processors.format_exc_info, processors.JSONRenderer(default=str)]
    if not _output.as_json:
        render = [structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), pad_event_to=0)]
    return structlog.wrap_logger(
        structlog.WriteLogger(cast("TextIO", _StandardError())),
        [
            structlog.contextvars.merge_contextvars,
            _add_level,
            processors.TimeStamper(fmt="iso" if _output.as_json else "%H:%M:%S"),
            *render,
        ],
        structlog.make_filtering_bound_logger(least),
    ).bind(logger=name)


def _add_level(_: Any, method: str, event: Any) -> Any:
    return {**event, "level": "warn" if method == "warning" else method}


def _print(line: str) -> None:
    _StandardError().write(f"{line}\n")


class _StandardError:
    """Standard error. A full disk or a closed stream does not stop the program."""

    def write(self, text: str) -> None:
        """Write the text at once."""
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(text)
            sys.stderr.flush()

    def flush(self) -> None:
        """Do nothing: each text was written at once."""
