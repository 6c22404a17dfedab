"""Signals that end us, as something to wait for instead of an exception anywhere."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from types import FrameType, TracebackType
from typing import Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """Within the context the first SIGINT, SIGTERM or SIGHUP is only noted.

    ``descriptor`` becomes readable then. At the end of the context the old handlers are back and
    the signal takes its usual course: for SIGINT that is KeyboardInterrupt. A signal that was
    ignored stays so. Outside the main thread, which gets all signals, nothing is changed.
    """

    def __init__(self) -> None:
        self.signal: int | None = None
        self._old: dict[signal.Signals, Any] = {}
        self.descriptor, self._write_end = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                if signal.getsignal(number) not in (signal.SIG_IGN, None):
                    self._old[number] = signal.signal(number, self._note)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._old.items():
            signal.signal(number, handler)
        os.close(self.descriptor)
        os.close(self._write_end)
        if self.signal is not None:
            signal.raise_signal(self.signal)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.signal is None:
            self.signal = number
        with contextlib.suppress(OSError):
            os.write(self._write_end, b"!")
