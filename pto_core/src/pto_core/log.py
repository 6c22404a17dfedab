"""Log events that have a name and fields, as readable text or as JSON.

::

    log = pto_core.log.get(__name__)
    log.info("kernel compiled", source=str(path), seconds=0.8)

structlog is imported when the first message is shown; a message below the log level costs only a
comparison. All output goes to standard error. No event is logged for single tasks. Commands write
messages that are not events with :func:`show` and :func:`relay`, which use the configured format.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_SEVERITY = {"error": 3, "warn": 2, "info": 1, "debug": 0}


@dataclass
class _Output:
    """The log settings of this process. There is one log, because there is one standard error."""

    least: int = _SEVERITY["warn"]
    as_json: bool = False


_output = _Output()


def configure(config: Mapping[str, Any]) -> None:
    """Set level and format of all loggers of this process to ``log_level`` and ``log_format``."""
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
        _write(level, {"event": "message", "logger": "pto", "text": text})
    else:
        _print(text)


def relay(line: str) -> None:
    """Write a line that another process printed; a JSON log line is written unchanged."""
    if _output.as_json and _is_record(line):
        _print(line)
    else:
        show(line)


def get(name: str) -> Logger:
    """Return the logger of a module; its messages contain ``name``."""
    return Logger(name)


class Logger:
    """Writes events with fields. A field's value is a text, a number, or a printable object."""

    __slots__ = ("_fields", "_name")

    def __init__(self, name: str, /, **fields: Any) -> None:
        self._name = name
        self._fields = fields

    def bind(self, **fields: Any) -> Logger:
        """Return a logger that adds ``fields`` to each of its events."""
        return Logger(self._name, **{**self._fields, **fields})

    def error(self, event: str, /, **fields: Any) -> None:
        """Log a failure."""
        self._log("error", event, fields)

    def warning(self, event: str, /, **fields: Any) -> None:
        """Log a suspicious condition that does not stop the program."""
        self._log("warn", event, fields)

    def info(self, event: str, /, **fields: Any) -> None:
        """Log a step that users may want to follow."""
        self._log("info", event, fields)

    def debug(self, event: str, /, **fields: Any) -> None:
        """Log a detail that helps in debugging."""
        self._log("debug", event, fields)

    def _log(self, level: str, event: str, fields: Mapping[str, Any]) -> None:
        if _SEVERITY[level] >= _output.least:
            _write(level, {"event": event, "logger": self._name, **self._fields, **fields})


def _is_record(line: str) -> bool:
    try:
        record = json.loads(line)
    except ValueError:
        return False
    return isinstance(record, dict) and {"event", "logger", "level", "timestamp"} <= record.keys()


def _write(level: str, fields: Mapping[str, Any]) -> None:
    import structlog

    stamp = structlog.processors.TimeStamper(fmt="iso" if _output.as_json else "%H:%M:%S")
    record = stamp(None, level, {**fields, "level": level})
    if _output.as_json:
        line: Any = structlog.processors.JSONRenderer(default=str)(None, level, record)
    else:
        colours = sys.stderr.isatty()
        line = structlog.dev.ConsoleRenderer(colors=colours, pad_event_to=0)(None, level, record)
    _print(line)


def _print(line: str) -> None:
    """Write a line to standard error. A full disk or a closed stream does not stop the program."""
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()
