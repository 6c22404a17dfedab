"""The thread of the relay that writes the printed text of a session."""

from __future__ import annotations

import os
import threading

from pto_core.errors.limits import start_thread

PENDING_BYTES_MAX = 1 << 22
_FINISH_S = 1.0


class OutputWriter:
    """Writes text to a descriptor in a thread; its methods never wait for the descriptor.

    A stopped terminal and a pipe that is not read accept no text. If more than ``most_bytes`` of
    text wait, further text is dropped, and a line reports the number of dropped lines. Text that
    the descriptor refuses is lost. ``descriptor``: None if the stream is closed. ``path``: for the
    line about dropped text.
    """

    def __init__(
        self, descriptor: int | None, path: str, most_bytes: int = PENDING_BYTES_MAX
    ) -> None:
        self._descriptor = descriptor
        self._path = path
        self._most_bytes = most_bytes
        self._changed = threading.Condition()
        self._pending: list[bytes] = []
        self._pending_bytes = 0  # includes the text that the thread writes now
        self._dropped = 0  # dropped lines that were not reported yet
        self._is_over = False
        if descriptor is not None:
            start_thread(threading.Thread(target=self._run, name="pto output", daemon=True))

    def write(self, text: str) -> None:
        """Queue the text, which must be whole lines; drop it if too much text waits."""
        if self._descriptor is None or self._is_over:
            return
        content = text.encode()
        with self._changed:
            if self._pending_bytes + len(content) > self._most_bytes:
                self._dropped += content.count(b"\n")
                return
            self._pending.append(content)
            self._pending_bytes += len(content)
            self._changed.notify_all()

    def finish(self, timeout_s: float = _FINISH_S) -> None:
        """Accept no more text; wait until all is written, but at most ``timeout_s``."""
        with self._changed:
            self._is_over = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: not (self._pending_bytes or self._dropped), timeout_s)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._pending or self._dropped or self._is_over)
                if not self._pending and not self._dropped:
                    return
                if self._dropped:
                    self._pending.append(_dropped_line(self._path, self._dropped))
                content, self._pending = b"".join(self._pending), []
                self._pending_bytes, self._dropped = len(content), 0
            self._write(content)
            with self._changed:
                self._pending_bytes -= len(content)
                self._changed.notify_all()

    def _write(self, content: bytes) -> None:
        if self._descriptor is None:
            return
        try:
            while content:
                content = content[os.write(self._descriptor, content) :]
        except OSError:
            return


def _dropped_line(path: str, lines: int) -> bytes:
    return (
        f"[{path}] {lines} lines were dropped, because the standard error stream of the "
        "program did not accept text fast enough\n"
    ).encode()
