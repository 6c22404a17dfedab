"""Clear variables in exception tracebacks before the device memory they refer to is freed."""

from __future__ import annotations

import traceback


def release_frames(error: BaseException) -> None:
    """Clear the local variables in the tracebacks of ``error`` and of its causes.

    Line numbers and function names remain. Local variables of Python kernels are views of device
    memory, and a debugger must not read this memory after it is freed.
    """
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        one = waiting.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        traceback.clear_frames(one.__traceback__)
        waiting += [one.__cause__, one.__context__]
