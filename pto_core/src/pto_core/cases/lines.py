"""Lines from a pipe."""

from __future__ import annotations

import contextlib
import os

# More than a pipe holds: who still writes after that many is not waited for.
_LAST_READS = 64


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

    def rest(self) -> list[str]:
        """Read what is there now, however incomplete; never blocks.

        The pipe may never end: a process that we do not know of can hold its other side.
        """
        os.set_blocking(self.descriptor, False)
        lines: list[str] = []
        with contextlib.suppress(BlockingIOError):
            for _ in range(_LAST_READS):
                if not self.is_open:
                    break
                lines += self.read()
        left, self._partial = self._partial, b""
        return [*lines, left.decode(errors="replace")] if left else lines
