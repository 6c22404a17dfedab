"""What all plugin families share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

API_VERSION = 0
"""The version of the Python plugin interfaces; a plugin states it as ``api_version``."""


@dataclass(frozen=True)
class Health:
    """Whether a plugin can work on this machine.

    ``reason`` says why not, in one sentence; ``fix`` is the command or act that mends it. Both are
    empty when ``ok``.
    """

    ok: bool
    reason: str = ""
    fix: str = ""


@dataclass(frozen=True)
class Option:
    """A setting that a plugin adds to the configuration.

    ``key`` is the full dotted name (``"sim.seed"``), ``parse`` turns text into a value or raises
    ``ValueError`` with what was expected, ``environment`` is the variable that sets it (or None),
    ``native`` the key under which the value reaches the plugin's native library as text (or None).
    """

    key: str
    default: Any
    parse: Callable[[str], Any]
    help: str
    environment: str | None = None
    native: str | None = None
