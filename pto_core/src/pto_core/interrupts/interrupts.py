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
        self._pipe: tuple[int, int] | None = None

    @property
    def descriptor(self) -> int:
        """Readable from the first signal on; made for who asks within the context.

        So who only holds signals back needs no descriptor, and has none that a fork would pass on.
        Raises OSError.
        """
        if self._pipe is None:
            self._pipe = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
            if self.signal is not None:
                self._make_readable()
        return self._pipe[0]

    @property
    def descriptors(self) -> tuple[int, ...]:
        """Those that are open, for a forked process to close."""
        return self._pipe or ()

    def __enter__(self) -> Interrupts:
        # The handlers come first and go last: nothing is half done when a signal raises.
        try:
            if threading.current_thread() is threading.main_thread():
                self._install()
        except BaseException:  # also the handler of another signal that was not replaced yet
            self._restore()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        ends, self._pipe = self.descriptors, None
        for descriptor in ends:
            os.close(descriptor)
        self._restore()

    def _install(self) -> None:
        for number in _SIGNALS:
            handler = signal.getsignal(number)
            if handler not in (signal.SIG_IGN, None):
                self._old[number] = handler
                signal.signal(number, self._note)

    def _restore(self) -> None:
        """Put the handlers back, and let a signal that was noted take its course."""
        try:
            while self._old:
                number = next(iter(self._old))
                signal.signal(number, self._old[number])
                del self._old[number]
            if self.signal is not None:
                signal.raise_signal(self.signal)
        finally:
            if self._old:  # one that was back has raised
                self._restore()

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.signal is None:
            self.signal = number
        self._make_readable()

    def _make_readable(self) -> None:
        if self._pipe is not None:
            with contextlib.suppress(OSError):
                os.write(self._pipe[1], b"!")
