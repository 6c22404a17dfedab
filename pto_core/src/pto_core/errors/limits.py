"""Name the limit of the system that a failed call has reached: of processes, open files, or memory.

::

    try:
        descriptor = os.pidfd_open(pid)
    except OSError as error:
        raise system_error(f"the child cannot be followed: {error.strerror}", error.errno) from None
"""

from __future__ import annotations

import errno
import resource
import threading
from typing import NamedTuple

from pto_core.errors import CapacityError


class Limit(NamedTuple):
    """A limit of the system. ``value``: None without a limit of this process or user."""

    name: str
    value: int | None
    advice: str


def reached_limit(code: int | None) -> Limit | None:
    """Return the limit that a call with the error number ``code`` has reached, or None."""
    if code == errno.EAGAIN:
        value = _value(resource.RLIMIT_NPROC)
        allowed = "any number of" if value is None else str(value)
        return Limit(
            "processes",
            value,
            f"this user may have {allowed} processes and threads (ulimit -u), the machine or a "
            "control group (pids.max) perhaps fewer; end other processes, or use fewer children",
        )
    if code in (errno.EMFILE, errno.ENFILE):
        value = _value(resource.RLIMIT_NOFILE)
        return Limit(
            "descriptors",
            value,
            f"this process may have {value} open files (ulimit -n); close files, raise the limit, "
            "or use fewer children",
        )
    if code == errno.ENOMEM:
        return Limit(
            "memory",
            _value(resource.RLIMIT_AS),
            "the machine, a control group or the limit of this process (ulimit -v) leaves no "
            "more memory; end other programs, or raise the limit",
        )
    return None


def system_error(text: str, code: int | None, value: int | None = None) -> CapacityError | OSError:
    """Return the error for a call that failed with the error number ``code``.

    It is a CapacityError that names the limit, or an OSError if the call did not reach a limit.
    ``text`` states what failed and why; ``value``: the number of processes or files that the
    program wanted.
    """
    limit = reached_limit(code)
    if limit is None:
        return OSError(code, text)
    return CapacityError(f"{text}; {limit.advice}", name=limit.name, value=value, limit=limit.value)


def start_thread(thread: threading.Thread) -> None:
    """Start a thread. Raises CapacityError."""
    try:
        thread.start()
    except RuntimeError as error:
        if thread.ident is not None:
            raise  # it was started before
        raise system_error(f"the thread {thread.name!r}: {error}", errno.EAGAIN) from None


def _value(kind: int) -> int | None:
    value = resource.getrlimit(kind)[0]
    return None if value == resource.RLIM_INFINITY else value
