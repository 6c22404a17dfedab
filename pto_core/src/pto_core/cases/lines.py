"""Read text lines from a pipe."""

from __future__ import annotations

import contextlib
import os

# The maximum number of reads in :meth:`Lines.rest`. That many reads empty a full pipe. Data that is
# written later is ignored.
_LAST_READS = 64


class Lines:
    """Reads complete lines from a pipe and, at its end, an incomplete last line."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.is_open = True
        self._partial = b""

    def read(self) -> list[str]:
        """Read from the pipe once and return the complete lines; blocks while the pipe is empty."""
        chunk = os.read(self.descriptor, 1 << 16)
        if not chunk:
            self.is_open = False
            rest, self._partial = self._partial, b""
            return [rest.decode(errors="replace")] if rest else []
        *lines, self._partial = (self._partial + chunk).split(b"\n")
        return [line.decode(errors="replace") for line in lines]

    def rest(self) -> list[str]:
        """Read the available data, including an incomplete last line; never blocks.

        Waiting for the end of the pipe could take forever, because another process may keep its
        write end open.
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
