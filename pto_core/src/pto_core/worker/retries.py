"""The attempts of a task that may run again: their number, and the wait after a failure.

The parent keeps a block of shared memory for each such task: the number of attempts that have
begun, and the pickled :class:`Retries` if it has conditions. The child counts the attempt before it
calls the function. If the function raises, the child decides whether the task may run again and
after which wait, because the child has the exception and its class. The loop of the child reports
the decision with the failure, and the driver lets the task wait outside of any child.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pto_core.kernels.retries import NO_RETRIES, Retries
from pto_core.worker.values import Content, ValueMemory, counted_content, loaded

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


def block_of(retries: Retries, memory: ValueMemory) -> npt.NDArray[np.uint8]:
    """Return the block of a task that may run again; only a count if it does so after any failure.

    Most tasks with retries have only a count, which costs less than a pickle.
    """
    if retries.on is BaseException and not retries.backoff_s:
        return memory.counted(None)
    return memory.counted(Content(retries, lambda: [("retries", retries)], memory))


class _Now:
    """The attempt that runs in this process, and the wait after the last one that has failed."""

    attempt = 1
    wait_ms = 0


def attempt() -> int:
    """Return the number of the attempt in which this task runs, from 1.

    An attempt counts when a child begins it, also if the child then dies. The number is 1 outside
    a task and in a task without retries.
    """
    return _Now.attempt


def take_wait_ms() -> int:
    """Return the wait that the last failed task stated, and forget it. The child's loop calls it.

    Return 0 for a task without retries, and ``NEVER_AGAIN_MS`` if the task must not run again.
    """
    wait_ms, _Now.wait_ms = _Now.wait_ms, 0
    return wait_ms


@contextmanager
def counted_attempt(block: npt.NDArray[np.uint8]) -> Iterator[None]:
    """Count an attempt of the task with this block. If it raises, state the wait after it."""
    count, content = counted_content(block)
    count[0] += 1
    _Now.attempt, _Now.wait_ms = count[0], 0
    try:
        yield
    except BaseException as error:
        retries: Retries = loaded(content) if content else NO_RETRIES
        _Now.wait_ms = retries.wait_ms(error, count[0])
        raise
    finally:
        _Now.attempt = 1
