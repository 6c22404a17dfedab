"""Wait for ends and for descriptors in one call."""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Sequence

from pto_transport_zmq.link.ends import End, poller
from pto_transport_zmq.link.interface import Ready


def wait(ends: Sequence[End], timeout_s: float | None, descriptors: Collection[int]) -> Ready:
    """Return the ends with a message, free space or news, and the readable descriptors."""
    until = math.inf if timeout_s is None else time.monotonic() + timeout_s
    numbers = [*descriptors]
    for end in ends:
        end.require_open()
        numbers.append(end.descriptor)
        if end.side_descriptor is not None:
            numbers.append(end.side_descriptor)
    poll = ends[0].poller(tuple(numbers)) if ends else poller(numbers)
    while True:
        ready = [end for end in ends if end.is_ready()]
        rest_s = 0.0 if ready else min([until, *(end.redial_s for end in ends)]) - time.monotonic()
        found = [number for number, _ in poll.poll(_milliseconds(rest_s))]
        changed = [end for end in ends if end.descriptor in found or end.side_descriptor in found]
        for end in changed:
            if end.side_descriptor in found:
                end.serve_side()
        if not ready:
            ready = [end for end in changed if end.is_ready()]
        readable = [descriptor for descriptor in descriptors if descriptor in found]
        if ready or readable or time.monotonic() >= until:
            return Ready(ready, readable)


def _milliseconds(rest_s: float) -> int | None:
    """Return milliseconds for ``poll``, rounded up so that the last wait is not a busy loop."""
    return None if rest_s == math.inf else math.ceil(max(rest_s, 0.0) * 1000)
