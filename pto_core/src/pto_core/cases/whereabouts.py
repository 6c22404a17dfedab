"""Find the line of the user's Python code at which a child hangs."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
from pathlib import Path

_SIGNAL = signal.SIGUSR1
_PATIENCE_S = 2.0  # time limit for the stack of the child; long, because the machine may be busy
_STEP_S = 0.01
_MOST_BYTES = 1 << 16
_FRAME = re.compile(r'^  File "(.*)", line (\d+) in (.*)$', re.MULTILINE)


class Whereabouts:
    """An anonymous file to which a child writes its Python stack on request.

    The child inherits ``descriptor`` and passes it to :func:`note_when_asked`.
    """

    def __init__(self) -> None:
        self.descriptor = os.memfd_create("pto-whereabouts", os.MFD_CLOEXEC)

    def ask(self, child: subprocess.Popen[bytes], folders: tuple[Path, ...]) -> str | None:
        """Return ``file:line in function`` of the innermost frame in ``folders``, if any."""
        if child.poll() is not None:
            return None
        child.send_signal(_SIGNAL)
        until = time.monotonic() + _PATIENCE_S
        before, text = None, ""
        while time.monotonic() < until and child.poll() is None and (not text or text != before):
            time.sleep(_STEP_S)
            before, text = text, self._text()
        for file, line, function in _FRAME.findall(text):
            if any(folder in Path(file).parents for folder in folders):
                return f"{file}:{line} in {function}"
        return None

    def _text(self) -> str:
        return os.pread(self.descriptor, _MOST_BYTES, 0).decode(errors="replace")

    def __enter__(self) -> Whereabouts:
        return self

    def __exit__(self, *raised: object) -> None:
        os.close(self.descriptor)


def note_when_asked(descriptor: int) -> None:
    """Install a signal handler that writes the main thread's stack, even during native code."""
    import faulthandler

    with contextlib.suppress(AttributeError, OSError):
        faulthandler.register(_SIGNAL, file=descriptor, all_threads=False)
