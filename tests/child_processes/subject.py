"""An observed process, and its messages to the observer."""

from __future__ import annotations

import faulthandler
import gc
import json
import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kill_talk import Talk


class Fault(Exception):
    """A fault that the observer found."""


@dataclass
class Subject:
    """A process that this process forks and observes, in a separate session."""

    pid: int
    events: int
    answers: int
    heard: bytes = b""
    status: int | None = None
    """The exit status, once the process has ended."""

    @classmethod
    def of(cls, body: Callable[[Talk], None]) -> Subject:
        """Fork a process that calls ``body``, and exits when ``body`` returns."""
        events, answers = os.pipe(), os.pipe()
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                os.close(events[0])
                os.close(answers[1])
                os.setsid()
                gc.collect()
                # do not collect inherited objects: their release would count as a change
                gc.freeze()
                faulthandler.enable(2)
                faulthandler.register(signal.SIGUSR1, 2, all_threads=True)
                body(Talk(events[1], answers[0]))
                code = 0
            except BaseException:  # noqa: BLE001 - it ends here whatever it is
                traceback.print_exc()
            finally:
                os._exit(code)
        os.close(events[1])
        os.close(answers[0])
        return cls(pid, events[0], answers[1])

    def hear(self, timeout_s: float) -> dict[str, Any] | None:
        """Return the next message; None after a timeout. Raises Fault if the process has exited."""
        deadline = time.monotonic() + timeout_s
        while b"\n" not in self.heard:
            left = deadline - time.monotonic()
            if not select.select([self.events], [], [], max(0.0, left))[0]:
                return None
            got = os.read(self.events, 1 << 16)
            if not got:
                self.status = os.waitpid(self.pid, 0)[1]
                raise Fault(f"the process ended without a message, with status {self.status}")
            self.heard += got
        line, _, self.heard = self.heard.partition(b"\n")
        said: dict[str, Any] = json.loads(line)
        return said

    def answer(self, **more: Any) -> None:
        os.write(self.answers, json.dumps(more).encode() + b"\n")

    def end(self) -> None:
        if self.status is None:
            os.kill(self.pid, signal.SIGKILL)
            self.status = os.waitpid(self.pid, 0)[1]
        os.close(self.events)
        os.close(self.answers)
