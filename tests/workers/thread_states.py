"""Call a function on another thread, and wait until the thread is blocked in the kernel."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

LIMIT_S = 20
END_S = 60
SAMPLES = 5
"""The number of samples. A thread that only waits for the GIL is awake in some of them."""


def await_blocked(native_id: int | None, samples: int = SAMPLES) -> None:
    """Wait until a thread of this process sleeps in several samples in a row, or has ended.

    This thread releases the GIL between the samples.
    """
    stat = Path(f"/proc/self/task/{native_id}/stat")
    limit, asleep = time.monotonic() + LIMIT_S, 0
    while asleep < samples and time.monotonic() < limit:
        time.sleep(0.001)
        try:
            state = stat.read_text().rpartition(")")[2].split()[0]
        except OSError:
            return
        asleep = asleep + 1 if state == "S" else 0


class CallInThread:
    """A call of a function on a separate thread, with its result or its exception."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self.value: Any = None
        self.error: BaseException | None = None
        self._function = function
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            self.value = self._function()
        except BaseException as error:  # noqa: BLE001 - the test checks it
            self.error = error

    def await_blocked(self, samples: int = SAMPLES) -> None:
        await_blocked(self.thread.native_id, samples)

    def await_end(self) -> BaseException | None:
        """Wait until the call has ended; return its exception."""
        self.thread.join(END_S)
        assert not self.thread.is_alive(), f"{self._function} has not returned"
        return self.error

    def result(self) -> Any:
        """Wait until the call has ended; return its result, or raise its exception."""
        error = self.await_end()
        if error is not None:
            raise error
        return self.value
