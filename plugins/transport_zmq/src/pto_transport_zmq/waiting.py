"""Wait for ends and for descriptors in one call."""

from __future__ import annotations

import math
import select
import time
from collections.abc import Collection, Sequence

from pto_core.interfaces import Ready
from pto_transport_zmq.ends import End


def wait(ends: Sequence[End], timeout_s: float | None, descriptors: Collection[int]) -> Ready:
    """Return the ends that may continue and the readable descriptors."""
    until = math.inf if timeout_s is None else time.monotonic() + timeout_s
    poll = select.poll()
    sides: dict[int, End] = {}
    for end in ends:
        end.require_open()
        poll.register(end.descriptor, select.POLLIN)
        if (side := end.side_descriptor) is not None:
            poll.register(side, select.POLLIN)
            sides[side] = end
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    while True:
        ready = [end for end in ends if end.is_ready()]
        rest_s = 0.0 if ready else until - time.monotonic()
        redial_s = min((end.redial_s for end in ends), default=math.inf) - time.monotonic()
        found = {number for number, _ in poll.poll(_milliseconds(min(rest_s, redial_s)))}
        for side in sides.keys() & found:
            sides[side].serve_side()
        if found and not ready:
            ready = [end for end in ends if end.is_ready()]
        readable = [descriptor for descriptor in descriptors if descriptor in found]
        if ready or readable or rest_s <= 0:
            return Ready(ready, readable)


def _milliseconds(rest_s: float) -> int | None:
    """Return a time for ``poll``, rounded up so that the last wait does not spin."""
    return None if rest_s == math.inf else math.ceil(max(rest_s, 0.0) * 1000)
