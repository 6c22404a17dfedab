"""Logging: each type of event has one name, and events have fields; as readable text or JSON.

::

    log = pto_core.log.get(__name__)
    log.info("kernel compiled", source=str(path), seconds=0.8)

structlog is imported when the first message is shown; a message below the level costs only a
comparison. All output is written to standard error. No message is logged per task. Commands write
other messages to standard error with :func:`show` and :func:`relay`, which respect the format.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_SEVERITY = {"error": 3, "warn": 2, "info": 1, "debug": 0}


@dataclass
class _Output:
    """The log settings of this process, which has one log because it has one standard error."""

    least: int = _SEVERITY["warn"]
    as_json: bool = False


_output = _Output()


def configure(config: Mapping[str, Any]) -> None:
    """Read ``log_level`` and ``log_format`` from ``config``, for every logger of this process."""
    _output.least = _SEVERITY[config["log_level"]]
    _output.as_json = config["log_format"] == "json"


def is_json() -> bool:
    """Return whether the messages of this process are JSON lines."""
    return _output.as_json


def show(text: str, level: str = "info") -> None:
    """Write ``text`` to standard error at every log level, unchanged or as a JSON line.

    For messages from a command to its user. With JSON lines, nothing else may be written to
    standard error.
    """
    if _output.as_json:
        _write(level, {"event": "message", "logger": "pto", "text": text})
    else:
        sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def relay(line: str) -> None:
    """Write a line that another process printed. Keep the line if it is a JSON log line already."""
    if _output.as_json and _is_record(line):
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()
    else:
        show(line)


def get(name: str) -> Logger:
    """Return the logger of a module; its messages show ``name``."""
    return Logger(name)


class Logger:
    """Writes events with fields. A field is a text, a number, or an object that can be printed."""

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
        """Log a suspicious condition that did not stop anything."""
        self._log("warn", event, fields)

    def info(self, event: str, /, **fields: Any) -> None:
        """Log a step that a user may want to follow."""
        self._log("info", event, fields)

    def debug(self, event: str, /, **fields: Any) -> None:
        """Log a detail for debugging."""
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
    sys.stderr.write(f"{line}\n")
