"""The file in which the traces of a Worker lie while a flight recorder is set."""

from __future__ import annotations

import contextlib
import os
import weakref
from pathlib import Path

from pto_core._hierarchy import SharedMapping
from pto_core.errors import UsageError
from pto_core.hierarchy.processes.descriptors import parent_only_mapping


class TraceFile:
    """A mapped file of zeros. It remains if the process crashes; otherwise it is removed.

    Raises UsageError if the file cannot be written.
    """

    def __init__(self, path: Path, nbytes: int) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self.mapping = parent_only_mapping(SharedMapping(nbytes, str(path)))
        except OSError as error:
            raise UsageError(
                f"the file of the flight recorder, {path}, cannot be written: {error.strerror}; "
                "use another path",
                name="flight_recorder",
                value=str(path),
            ) from error
        state = os.fstat(self.mapping.descriptor)
        # The end of the program removes the file of a Worker that was not closed.
        self.remove = weakref.finalize(self, _remove, path, state, os.getpid())


def _remove(path: Path, state: os.stat_result, process: int) -> None:
    """Remove the file, unless a later Worker has replaced it or this is a forked process."""
    with contextlib.suppress(OSError):
        if os.getpid() == process and os.path.samestat(path.stat(), state):
            path.unlink()
