"""One thing that a machine has or lacks."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """What was looked for, whether it is there, and how to get it.

    ``required``: the simulator cannot run cases without it. ``fix`` is a command or an act; it may
    be empty only where ``ok`` always holds.
    """

    name: str
    ok: bool
    required: bool
    detail: str
    fix: str = ""
