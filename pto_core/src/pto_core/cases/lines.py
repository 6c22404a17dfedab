"""Lines from a pipe."""

from __future__ import annotations

import contextlib
import os

# The maximum number of reads: more than a full pipe needs. Later output is ignored.
_LAST_READS = 64


class Lines:
    """Complete lines from a pipe, and the incomplete last line at the end of the pipe."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.is_open = True
        self._partial = b""

    def read(self) -> list[str]:
        """Read once; may block if the pipe is empty."""
        chunk = os.read(self.descriptor, 1 << 16)
        if not chunk:
            self.is_open = False
            rest, self._partial = self._partial, b""
            return [rest.decode(errors="replace")] if rest else []
        *lines, self._partial = (self._partial + chunk).split(b"\n")
        return [line.decode(errors="replace") for line in lines]

    def rest(self) -> list[str]:
        """Read the available data, including an incomplete last line; never blocks.

        Waiting for the end of the pipe could hang, because another process may hold its write end.
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
