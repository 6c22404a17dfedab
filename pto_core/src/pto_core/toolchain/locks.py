"""File locks between processes: the process that holds an ``flock`` on the file owns the lock.

The file exists only while a process holds the lock or waits for it, so no unused files remain. A
holder that is killed loses the lock with its process, and the next holder removes the file.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from pathlib import Path

POLL_S = 0.02


class FileLock:
    """An exclusive lock of a file. Each thread needs its own instance."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor = -1

    def try_acquire(self) -> bool:
        """Take the lock if it is free; raises OSError if the folder cannot be written."""
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        descriptor = os.open(self._path, flags, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return False
        except BaseException:
            os.close(descriptor)
            raise
        if not self._is_current(descriptor):
            os.close(descriptor)  # the holder removed the file between open and flock
            return False
        self._descriptor = descriptor
        return True

    def acquire(self, pause: Callable[[float], None]) -> None:
        """Take the lock; between attempts call ``pause(seconds)``, which may raise to give up."""
        while not self.try_acquire():
            pause(POLL_S)

    def release(self) -> None:
        """Remove the file and release the lock; a second call has no effect."""
        if self._descriptor < 0:
            return
        # Remove the file before the lock is released. A process that has opened the removed file
        # gets its lock, detects that the file was removed, and tries again.
        self._path.unlink(missing_ok=True)
        os.close(self._descriptor)
        self._descriptor = -1

    def _is_current(self, descriptor: int) -> bool:
        try:
            return os.path.samestat(os.fstat(descriptor), os.stat(self._path))
        except FileNotFoundError:
            return False

    def __enter__(self) -> FileLock:
        return self

    def __exit__(self, *raised: object) -> None:
        self.release()
