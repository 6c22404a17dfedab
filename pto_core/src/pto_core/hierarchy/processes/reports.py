"""The reports that a starting child sends to its parent through a pipe.

A report is a length followed by a pickled pair: ``("doing", text)``, ``("ready", value)`` or
``("failed", packed Failure)``. The pipe is closed after the last report, or by the exit of the
child.
"""

from __future__ import annotations

import os
import pickle
import struct
from typing import Any

_LENGTH = struct.Struct("<Q")
_READ_BYTES = 1 << 16


def send_report(descriptor: int, kind: str, value: object) -> None:
    """Write one report; wait while the pipe is full. Raises the exceptions of pickle."""
    content = pickle.dumps((kind, value), protocol=pickle.HIGHEST_PROTOCOL)
    left = memoryview(_LENGTH.pack(len(content)) + content)
    while left:
        left = left[os.write(descriptor, left) :]


class ReportReader:
    """The read end of the pipe, which the parent polls."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.is_open = True
        self._received = bytearray()
        os.set_blocking(descriptor, False)

    def read(self) -> list[tuple[str, Any]]:
        """Return the complete reports. Raises the exceptions of unpickling."""
        while self.is_open:
            try:
                content = os.read(self.descriptor, _READ_BYTES)
            except BlockingIOError:
                break
            self.is_open = bool(content)
            self._received += content
        reports = []
        while (report := self._next()) is not None:
            reports.append(pickle.loads(report))
        return reports

    def _next(self) -> bytes | None:
        if len(self._received) < _LENGTH.size:
            return None
        end = _LENGTH.size + _LENGTH.unpack_from(self._received)[0]
        if len(self._received) < end:
            return None
        report = bytes(self._received[_LENGTH.size : end])
        del self._received[:end]
        return report
