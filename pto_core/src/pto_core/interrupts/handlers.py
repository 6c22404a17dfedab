"""Telling what the handler of a signal raised from what the code raised that it interrupted."""

from __future__ import annotations

import signal
from types import TracebackType


def is_raised_by_handler(error: BaseException, trace: TracebackType | None) -> bool:
    """Say whether ``error`` came out of a handler that is installed, or interrupts the program."""
    if isinstance(error, KeyboardInterrupt):
        return True
    handlers = {getattr(signal.getsignal(number), "__code__", None) for number in signal.Signals}
    while trace is not None:
        if trace.tb_frame.f_code in handlers:
            return True
        trace = trace.tb_next
    return False
