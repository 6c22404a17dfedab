"""Child processes that end with this process, together with their own children.

The children of a group are in one process group. The group leader is a shell that reads a pipe.
Only this process has the other end of the pipe. When this process ends, even by SIGKILL, the pipe
closes and the leader ends the group.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

# If this process has written a process id to the pipe, the leader sends SIGTERM to that process and
# waits up to 2 s before it kills the group. Otherwise it kills the group at once.
_LEADER_SCRIPT = """\
trap "" TERM
read -r pid && {
  read -r _
  kill -TERM "$pid"
  tries=20
  while [ $tries -gt 0 ] && kill -0 "$pid"; do sleep 0.1; tries=$((tries - 1)); done
}
kill -KILL 0
"""
_LEADER = ("/bin/sh", "-c", _LEADER_SCRIPT)


@dataclass(frozen=True)
class CompilerResult:
    """The result of a compiler: its exit code (negative: the signal) and its whole output."""

    code: int
    output: str


class ProcessGroup:
    """A group of children that end with this process. Leaving the context kills all of them.

    Several threads may call ``start`` and ``run`` at once.
    """

    def __init__(self) -> None:
        # The lock is held while a child starts and joins the group, so that close() cannot miss it.
        self._lock = threading.RLock()
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

    def start(
        self,
        command: Sequence[str],
        *,
        stdin: int = subprocess.DEVNULL,
        stdout: int | IO[bytes] = subprocess.DEVNULL,
        folder: Path | None = None,
        environment: Mapping[str, str] | None = None,
        pass_descriptors: Sequence[int] = (),
    ) -> subprocess.Popen[bytes]:
        """Start a child; its standard error goes to the same place as its standard output.

        Raises OSError if the child cannot be started, or if the group was closed.
        """
        with self._lock:
            if self._lifeline < 0:
                raise ProcessLookupError("the group was closed")
            return subprocess.Popen(
                command,
                stdin=stdin,
                stdout=stdout,
                stderr=subprocess.STDOUT,
                cwd=folder,
                env=None if environment is None else dict(environment),
                pass_fds=pass_descriptors,
                process_group=self._leader.pid,
            )

    def give_time(self, process: subprocess.Popen[bytes]) -> None:
        """Let the leader send ``process`` SIGTERM if this process dies, and SIGKILL 2 s later."""
        os.write(self._lifeline, f"{process.pid}\n".encode())

    def run(
        self, command: Sequence[str], folder: Path | None, environment: Mapping[str, str]
    ) -> CompilerResult:
        """Run one child until it exits. Raises OSError if it cannot be started."""
        process = self.start(
            command, stdout=subprocess.PIPE, folder=folder, environment=environment
        )
        with process:
            output, _ = process.communicate()
        return CompilerResult(process.returncode, os.fsdecode(output))

    def close(self) -> None:
        """Kill every process of the group; a second call has no effect."""
        with self._lock:
            if self._lifeline < 0:
                return
            # The leader's exit status was not collected, so no other group can have this number.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._leader.pid, signal.SIGKILL)
            self._leader.wait()
            lifeline, self._lifeline = self._lifeline, -1
            os.close(lifeline)

    def __enter__(self) -> ProcessGroup:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()
