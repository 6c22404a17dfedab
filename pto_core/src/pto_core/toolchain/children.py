"""Compilers as child processes that never outlive us.

All compilers of one build are in one process group whose leader waits on a pipe that only we hold
open. However we end, also by SIGKILL, the pipe closes and the leader kills the group: compiler
drivers and whatever they started.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

_LEADER = ("/bin/sh", "-c", "read _; kill -KILL 0")


@dataclass(frozen=True)
class Outcome:
    """How a compiler ended: its exit code (negative: the signal) and all that it said."""

    code: int
    output: str


class CompilerGroup:
    """A process group for compilers; leaving the context ends all of them.

    ``run`` may be called from several threads at once.
    """

    def __init__(self) -> None:
        read_end, self._lifeline = os.pipe2(os.O_CLOEXEC)
        try:
            self._leader = subprocess.Popen(
                _LEADER,
                stdin=read_end,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                process_group=0,
            )
        except BaseException:
            os.close(self._lifeline)
            raise
        finally:
            os.close(read_end)

    def run(
        self, command: Sequence[str], folder: Path | None, environment: Mapping[str, str]
    ) -> Outcome:
        """Run one compiler to its end. Raises OSError when it cannot be started."""
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env=dict(environment),
            process_group=self._leader.pid,
        )
        with process:
            output, _ = process.communicate()
        return Outcome(process.returncode, output.decode(errors="replace"))

    def close(self) -> None:
        """End the leader and every compiler that still runs; closing twice is fine."""
        if self._lifeline >= 0:
            lifeline, self._lifeline = self._lifeline, -1
            os.close(lifeline)
            self._leader.wait()

    def __enter__(self) -> CompilerGroup:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
