"""Another user, for tests that run as root or as any other user."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

_STRANGER = 54321


@pytest.fixture
def give_away(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], int]:
    """Return a function that makes a file one of another user, and returns the owner's number.

    Only root can change an owner. In other processes, this process seems to be of another user.
    """

    def give_away(path: Path) -> int:
        own = os.geteuid()
        if own == 0:
            os.chown(path, _STRANGER, -1, follow_symlinks=False)
            return _STRANGER
        monkeypatch.setattr(os, "geteuid", lambda: _STRANGER)
        return own

    return give_away
