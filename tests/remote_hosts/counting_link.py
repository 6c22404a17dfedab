"""A link that is zmq and records its traffic in the file PTO_TEST_TRAFFIC.

Each line has the process id and the bytes of one message that the process sent or received.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Sequence
from typing import Any

from pto_transport_zmq.link.loading import load_links

NAME = "counting"
MODULE = """
from counting_link import CountingZmq
from pto_transport_zmq import LinkTransport

plugin = LinkTransport(CountingZmq())
"""
VARIABLE = "PTO_TEST_TRAFFIC"


def _record(parts: Sequence[Any]) -> None:
    with open(os.environ[VARIABLE], "a") as opened:
        opened.write(json.dumps([os.getpid(), sum(map(len, parts))]) + "\n")


class _Counted:
    """An end of a link whose messages are recorded."""

    def __init__(self, end: Any) -> None:
        self.end = end

    def __getattr__(self, name: str) -> Any:
        return getattr(self.end, name)

    def send(self, *arguments: Any) -> bool:
        is_sent = bool(self.end.send(*arguments))
        if is_sent:
            _record(arguments[-1])
        return is_sent

    def receive(self) -> Any:
        message = self.end.receive()
        if message is not None:
            _record(message.parts)
        return message


class CountingZmq:
    """The links of zmq, with a name of its own."""

    def __init__(self) -> None:
        self.inner = load_links("zmq")
        self.name = NAME

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def listen(self, *arguments: Any, **options: Any) -> _Counted:
        return _Counted(self.inner.listen(*arguments, **options))

    def dial(self, *arguments: Any, **options: Any) -> _Counted:
        return _Counted(self.inner.dial(*arguments, **options))

    def wait(
        self,
        ends: Sequence[_Counted],
        timeout_s: float | None = None,
        descriptors: Collection[int] = (),
    ) -> Any:
        ready = self.inner.wait([one.end for one in ends], timeout_s, descriptors)
        return type(ready)([one for one in ends if one.end in ready.ends], ready.descriptors)
