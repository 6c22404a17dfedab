"""The requests to an agent and its replies.

A message has a head, then a record in parts of at most 1 MiB. The head is the same in all builds:
four bytes ``PTOA``, the number of the request (8 bytes), and the build of the sender as text.
Records can differ between builds. If an agent cannot read a record of another build, it replies the
head alone, and the client reports both builds.

A client repeats a request until the reply arrives, so the agent answers a repeated request in the
same way. The client repeats ``Open`` as ``AwaitOpened``, which is short.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec

import pto_core
from pto_core import _native, _worker
from pto_core.errors import LinkError, ProtocolError
from pto_transport_zmq.link.interface import Link, Links
from pto_transport_zmq.remote.blueprint import (
    BLUEPRINT_BYTES_MAX,
    CALLABLES_MAX,
    Blueprint,
    CallableRecord,
)
from pto_transport_zmq.remote.program_modules import USED_MAX, ModuleSources, UsedModule
from pto_transport_zmq.remote.session import check_build
from pto_transport_zmq.remote.values import (
    FailureRecord,
    Name,
    Natural,
    Record,
    Text,
    decoder,
    encoded,
)
from pto_transport_zmq.remote.wire import Part


@cache
def build() -> str:
    """Return the core's version with a digest of the code, such as ``0.1.0+2f61c09a7be4``.

    Two builds of one version can have different code. Their hosts must not work together.
    """
    digest = hashlib.sha256(f"{_native.source_digest} {_worker.source_digest}".encode())
    for package in (Path(pto_core.__file__).parent, Path(__file__).parents[1]):
        for path in sorted(package.rglob("*.py")):
            digest.update(path.read_bytes())
    return f"{pto_core.__version__.replace('+', '.')}+{digest.hexdigest()[:12]}"


RANGES_MAX = 64
_MAGIC = b"PTOA"
_NUMBER_BYTES = 8
_BUILD = re.compile(rb"[0-9A-Za-z.+_!-]{1,32}")
_PART_BYTES = 1 << 20
_REPEAT_S = 0.5

_Session = Annotated[bytes, msgspec.Meta(min_length=16, max_length=16)]


class Open(Record, frozen=True, tag="open"):
    """Start a session: a gateway and the Worker of the blueprint.

    ``memory``: the limit of shadow memory in bytes. ``buffer_memory``: the limit of remote buffers
    in bytes. ``tasks``: the maximum number of tasks in flight. ``modules``: sources that the Worker
    can import. ``uses``: modules that its functions use, to compare with the modules of the host.
    """

    session: _Session
    epoch: Natural
    path: Name
    core_version: Name
    python: tuple[int, int]
    lease_ns: Natural
    blueprint: Blueprint
    callables: Annotated[list[CallableRecord], msgspec.Meta(max_length=CALLABLES_MAX)]
    ranges: Annotated[list[tuple[Natural, Natural]], msgspec.Meta(max_length=RANGES_MAX)]
    buffers: tuple[Natural, Natural]
    queue_bytes: Natural
    start_timeout_s: float
    memory: Natural
    buffer_memory: Natural
    tasks: Natural
    modules: ModuleSources = {}  # noqa: RUF012
    uses: Annotated[list[UsedModule], msgspec.Meta(max_length=USED_MAX)] = []  # noqa: RUF012


class AwaitOpened(Record, frozen=True, tag="await_opened"):
    """Ask again for the reply to ``Open``, without its large content; start no session."""

    session: _Session
    epoch: Natural


class EndSession(Record, frozen=True, tag="end"):
    """End a session, and all its earlier epochs."""

    session: _Session
    epoch: Natural


class AwaitEnd(Record, frozen=True, tag="await_end"):
    """Wait until no process of the session exists. The request itself does not end the session.

    An agent that did not start the session replies neither to this request nor to ``EndSession``.
    """

    session: _Session
    epoch: Natural


class GetStatus(Record, frozen=True, tag="status"):
    """Request a description of the agent."""


class Drain(Record, frozen=True, tag="drain"):
    """Accept no further session."""


class Stop(Record, frozen=True, tag="stop"):
    """End all sessions and the agent."""


class Opened(Record, frozen=True, tag="opened"):
    """The session listens at this port of the agent's host."""

    port: Natural


class Unknown(Record, frozen=True, tag="unknown"):
    """The agent has no such session; the client must send ``Open`` again."""


class Refused(Record, frozen=True, tag="refused"):
    """The request failed."""

    failure: FailureRecord


class Ended(Record, frozen=True, tag="ended"):
    """No process of the session exists any more."""


class SessionStatus(Record, frozen=True):
    """One session of an agent."""

    path: Name
    client: Name
    epoch: Natural
    processes: Natural
    age_s: float


class Status(Record, frozen=True, tag="state"):
    """An agent and its sessions."""

    core_version: Name
    address: Text
    is_draining: bool
    sessions: list[SessionStatus]


class Done(Record, frozen=True, tag="done"):
    """The agent has performed the request."""


Request = Open | AwaitOpened | EndSession | AwaitEnd | GetStatus | Drain | Stop
Reply = Opened | Unknown | Refused | Ended | Status | Done
_Kind = TypeVar("_Kind")

decode_request = decoder(Request, "request to an agent", BLUEPRINT_BYTES_MAX)
decode_reply: Callable[[bytes], Reply] = decoder(Reply, "reply of an agent", BLUEPRINT_BYTES_MAX)


def pack_head(number: bytes) -> bytes:
    """Return the head of a message of this build."""
    return _MAGIC + number + build().encode()


def pack(number: bytes, record: Record) -> list[Part]:
    """Return the parts of a message."""
    content = encoded(record)
    starts = range(0, len(content), _PART_BYTES)
    return [pack_head(number), *(content[start : start + _PART_BYTES] for start in starts)]


def unpack(parts: Sequence[Part]) -> tuple[bytes, str, bytes]:
    """Return number, build of the sender, and record of a message.

    Raises ProtocolError for an invalid head.
    """
    head = bytes(parts[0])
    start = len(_MAGIC) + _NUMBER_BYTES
    number, sender = head[len(_MAGIC) : start], head[start:]
    if not head.startswith(_MAGIC) or not _BUILD.fullmatch(sender):
        raise ProtocolError(
            f"the head {head[:48]!r} is not {_MAGIC.decode()}, a number and a build of ptorun-core"
        )
    return number, sender.decode(), b"".join(parts[1:])


class Question:
    """A request that is repeated until the reply has arrived. No call blocks.

    The content of ``Open`` can have many MiB. It is sent once on each connection; ``AwaitOpened``
    repeats it.
    """

    def __init__(self, link: Link, request: Request) -> None:
        self.link = link
        self._number = os.urandom(_NUMBER_BYTES)
        self._request = self._repeated = pack(self._number, request)
        if isinstance(request, Open):
            repeated = AwaitOpened(request.session, request.epoch)
            self._repeated = pack(self._number, repeated)
        self._connection = 0  # the number of the last connection on which the request was sent
        self._repeat = 0.0

    def reply(self) -> Reply | None:
        """Return the reply, or None before it arrives. Raises ProtocolError if it is invalid."""
        while (message := self.link.receive()) is not None:
            number, sender, content = unpack(message.parts)
            if number == self._number:
                reply = _read_reply(content, sender)
                if not isinstance(reply, Unknown):
                    return reply
                self._connection = 0
        self._send()
        return None

    def _send(self) -> None:
        connection, now = self.link.connections, time.monotonic()
        is_new = connection != self._connection
        if (is_new or now >= self._repeat) and self.link.send(
            self._request if is_new else self._repeated
        ):
            self._connection, self._repeat = connection, now + _REPEAT_S


def _read_reply(content: bytes, sender: str) -> Reply:
    try:
        return decode_reply(content)
    except ProtocolError:
        check_build(parent=build(), host=sender)
        raise


def ask(plugin: Links, link: Link, address: str, request: Request, timeout_s: float) -> Reply:
    """Return the reply of an agent; raise LinkError if none arrives in time."""
    question = Question(link, request)
    until = time.monotonic() + timeout_s
    while (left_s := until - time.monotonic()) > 0:
        reply = question.reply()
        if reply is not None:
            return reply
        plugin.wait([link], min(_REPEAT_S, left_s))
    reason = link.problem or "no reply arrived"
    raise LinkError(
        f"the agent at {address} did not answer within {timeout_s:g} s: {reason}; check "
        "that an agent (`pto agent serve`) runs there, and the address, the keys and the firewall",
        address=address,
    )
