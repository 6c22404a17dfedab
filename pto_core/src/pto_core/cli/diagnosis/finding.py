"""The result of one check of ``pto doctor``."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """The name of the check, whether it passed, and how to fix a failure.

    If ``required`` is true, the chosen backend cannot run cases unless the check passes. ``fix`` is
    a command or an instruction; it may be empty only if the check cannot fail.
    """

    name: str
    ok: bool
    required: bool
    detail: str
    fix: str = ""
