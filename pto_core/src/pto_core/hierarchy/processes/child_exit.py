"""The exit of a child process, and the errors that report it."""

from __future__ import annotations

import signal
from dataclasses import dataclass

from pto_core.errors import ChildDiedError, ChildHungError

_REASONS = {
    "SIGSEGV": "an invalid memory access",
    "SIGBUS": "an invalid memory access",
    "SIGFPE": "an arithmetic error such as a division by zero",
    "SIGILL": "an invalid instruction",
    "SIGABRT": "abort()",
    "SIGKILL": "killed from outside, perhaps for lack of memory",
}


@dataclass(frozen=True)
class ChildExit:
    """The exit of a child, either by ``signal`` or with ``exit_code``.

    Both are None if other code in this process has collected the exit status.
    """

    index: int
    path: str
    pid: int
    exit_code: int | None = None
    signal: int | None = None

    @property
    def description(self) -> str:
        """The verb phrase of a sentence about the child, such as ``was killed by SIGKILL``."""
        if self.signal is not None:
            name = _signal_name(self.signal)
            reason = f" ({_REASONS[name]})" if name in _REASONS else ""
            return f"was ended by {name}{reason}"
        if self.exit_code is not None:
            return f"ended by itself with code {self.exit_code}"
        return "ended; its exit code is unknown, because other code in this process collected it"

    def died_error(self) -> ChildDiedError:
        """Return the error for a child whose process has ended."""
        return self._error(f"process {self.pid} {self.description}")

    def broken_error(self, message: str) -> ChildDiedError:
        """Return the error for a child that was killed because its connection broke."""
        # the child exited first, and its exit broke the connection
        if self.signal != signal.SIGKILL:
            return self.died_error()
        return self._error(f"process {self.pid} was ended because its connection broke: {message}")

    def hung_error(self, timeout_s: float | None) -> ChildHungError:
        """Return the error for a child that was killed because a task exceeded its time limit."""
        limit = "its time limit" if timeout_s is None else f"its time limit of {timeout_s:g} s"
        return ChildHungError(
            f"{self.path}: a task did not end within {limit}, so process {self.pid} was ended",
            child=self.index,
            path=self.path,
            pid=self.pid,
            signal=self.signal,
            timeout_s=timeout_s,
        )

    def _error(self, event: str) -> ChildDiedError:
        return ChildDiedError(
            f"{self.path}: {event}",
            child=self.index,
            path=self.path,
            pid=self.pid,
            signal=self.signal,
            exit_code=self.exit_code,
        )


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
