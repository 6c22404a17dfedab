"""The result of one check."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """The name of the check, whether it passed, and how to fix a failure.

    ``required``: the simulator cannot run cases without it. ``fix`` is a command or an instruction;
    it may be empty only if ``ok`` is always true.
    """

    name: str
    ok: bool
    required: bool
    detail: str
    fix: str = ""
