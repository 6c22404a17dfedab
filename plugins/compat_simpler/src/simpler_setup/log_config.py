"""Log levels by name."""

import logging

from pto_core.errors import UsageError

_LEVELS = {
    "error": logging.ERROR,
    "warn": logging.WARNING,
    "warning": logging.WARNING,
    "timing": 25,
    "info": logging.INFO,
    "debug": logging.DEBUG,
}


def parse_level(name: str) -> int:
    """Return the level of the module ``logging`` for a name such as ``"info"``.

    Raises UsageError.
    """
    if name.lower() not in _LEVELS:
        raise UsageError(
            f"{name!r} is not a log level; use {', '.join(_LEVELS)}", name="name", value=name
        )
    return _LEVELS[name.lower()]
