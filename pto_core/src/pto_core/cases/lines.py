"""Lines from a pipe."""

from __future__ import annotations

import os


class Lines:
    """Complete lines from a pipe; the rest of the last one when it ends."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.is_open = True
        self._partial = b""

    def read(self) -> list[str]:
        """Read once; may block when nothing is there."""
        chunk = os.read(self.descriptor, 1 << 16)
        if not chunk:
            self.is_open = False
            rest, self._partial = self._partial, b""
            return [rest.decode(errors="replace")] if rest else []
        *lines, self._partial = (self._partial + chunk).split(b"\n")
        return [line.decode(errors="replace") for line in lines]
