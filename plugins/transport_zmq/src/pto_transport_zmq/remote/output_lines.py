"""The printed text of a session, in whole lines."""

from __future__ import annotations

import os
from collections.abc import Iterator

LINE_BYTES_MAX = 1 << 16
_READ_BYTES = 1 << 16
_READS_MAX = 16  # enough for all text in a pipe, which holds 64 KiB by default


class OutputLines:
    """Reads one stream that the processes of a session write to. Each stream has its own pipe.

    A line longer than ``LINE_BYTES_MAX`` is returned in parts, each as a line.
    """

    def __init__(self, descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        self.descriptor = descriptor
        self._incomplete = b""

    def read(self) -> bytes:
        """Return the whole lines that have arrived since the last call, without waiting."""
        self._incomplete += self._arrived()
        end = self._incomplete.rfind(b"\n") + 1
        lines, self._incomplete = self._incomplete[:end], self._incomplete[end:]
        if len(self._incomplete) >= LINE_BYTES_MAX:
            return lines + self.rest()
        return lines

    def read_all(self) -> Iterator[bytes]:
        """Yield all text that has arrived; an incomplete last line counts as a line.

        It reads at most 1 MiB, because a process can print without a pause.
        """
        for _ in range(_READS_MAX):
            lines = self.read()
            if not lines:
                break
            yield lines
        if rest := self.rest():
            yield rest

    def rest(self) -> bytes:
        """Return the incomplete last line with a line end; empty if there is none."""
        rest, self._incomplete = self._incomplete, b""
        return rest + b"\n" if rest else b""

    def _arrived(self) -> bytes:
        try:
            return os.read(self.descriptor, _READ_BYTES)
        except BlockingIOError:
            return b""


def prefixed(path: str, lines: bytes) -> str:
    """Return whole lines with the path of their session before each."""
    text = lines.decode(errors="replace").removesuffix("\n")
    return "".join(f"[{path}] {line}\n" for line in text.split("\n"))
