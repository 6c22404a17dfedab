"""The relay: the child process on the parent's host that stands for a remote Worker.

It is a new interpreter, because it is unsafe to fork when a link has started threads. For the
parent, the relay is a local child: it receives frames and answers them.

::

    parent's host                                      remote host
    Worker ── shared memory ── relay ══ session ══ gateway ── shared memory ── Worker
                               FrameRelay            FrameGateway
                               HomeMemory            ShadowMemory
                                  └── questions ──── agent

One thread does everything, in turns: handle the messages that have arrived (``_turn``), move frames
(``FrameRelay.step``), transmit (``flush``), and wait for the links or for a new frame.

Invariants:

- The parent sees the death of a relay only after no process of its session is left on the other
  host. So the parent may start the child again at once. ``leave`` waits for the confirmation of the
  gateway, or of the agent if the gateway was killed, or for the end of its lease.
- Everything that ends a relay is an exception: ``EndpointClosedError`` if the parent has closed,
  any other ``PtoError`` with the reason, which the parent reads from shared memory.
- While the other host is silent, the relay asks the agent, so a killed gateway is noticed before
  the lease is over.
"""

from __future__ import annotations

import os
import struct
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from pto_core._worker import BellWatch, ChildPort
from pto_core.errors import EndpointClosedError, LinkError, ProtocolError, PtoError
from pto_core.errors.limits import start_thread
from pto_core.worker.processes.starting import flush_output
from pto_transport_zmq.link.interface import (
    KeyPair,
    Link,
    Links,
    with_port,
)
from pto_transport_zmq.link.loading import load_links
from pto_transport_zmq.remote import REASON_BYTES
from pto_transport_zmq.remote.address_space import AddressSpace, keep_freed_chunks
from pto_transport_zmq.remote.agent_messages import (
    AwaitEnd,
    Ended,
    EndSession,
    GetStatus,
    Open,
    Opened,
    Question,
    Refused,
    Reply,
    Request,
    ask,
)
from pto_transport_zmq.remote.buffers import BufferRelay
from pto_transport_zmq.remote.frames import FrameRelay
from pto_transport_zmq.remote.keys import AGENT, CLIENT, key_pair, public_key
from pto_transport_zmq.remote.lease import now_ns
from pto_transport_zmq.remote.memory import DigestTable, HomeMemory
from pto_transport_zmq.remote.messages import MessageKind
from pto_transport_zmq.remote.session import (
    DialledSession,
    Identity,
    RemoteSession,
    SessionState,
    Side,
)
from pto_transport_zmq.remote.values import failure_from_bytes, failure_from_record
from pto_transport_zmq.remote.wire import Message

if TYPE_CHECKING:
    from pto_core.worker.children import ChildContext
    from pto_core.worker.processes import ChildStart


SESSION_OVER = 75
"""The exit code of a relay whose session is over: no process of it is left on the other host."""
_LENGTH = struct.Struct("<I")
_CONNECT_S = 5.0
_HEAD_BYTES = 64
_WAIT_S = 0.05  # the longest wait while a frame or a reply of the agent is pending
_END_WAIT_S = 0.005
_SILENT_HEARTBEATS = 3


@dataclass(frozen=True)
class RelayBody:
    """The body of the relay process; it can be pickled.

    ``request`` opens the session. The body maps the ranges of the parent's memory when it runs.
    ``reason``: the address of :data:`REASON_BYTES` of shared memory for the reason of an exit.
    ``digests``: the table that all relays of the Worker share.
    """

    context: ChildContext
    agent: AgentAddress
    request: Open
    quota: int
    reason: int
    digests: DigestTable

    def __call__(self, start: ChildStart) -> None:
        """Open the session, then pass frames on until the parent closes the connection."""
        start.doing(f"connecting to the agent at {self.agent.address}")
        agent = Contact.of(self.agent)
        relay = _Relay(self, agent, _opened(agent, self.request))
        try:
            relay.connect(start)
            relay.serve()
        except EndpointClosedError:
            relay.leave("the parent closed the connection")
        except PtoError as error:
            relay.leave(str(error))
            self.write_reason(str(error))
            # Before READY, the parent reports the last step and not the reason.
            if not start.is_ready:
                start.doing(f"connecting to the session: {error}")
            flush_and_exit(SESSION_OVER)

    def write_reason(self, text: str) -> None:
        """Write the reason of the exit to memory that the parent reads."""
        import ctypes

        content = text.encode()[: REASON_BYTES - _LENGTH.size]
        packed = _LENGTH.pack(len(content)) + content
        ctypes.memmove(self.reason, packed, len(packed))


def flush_and_exit(code: int) -> NoReturn:
    """Flush the output and exit, so that the parent sees the exit before the closed connection."""
    flush_output()
    os._exit(code)


@dataclass(frozen=True)
class AgentAddress:
    """The address of an agent, the folder of keys, and the name of the transport.

    ``is_insecure``: whether an agent on another machine is allowed without keys.
    """

    address: str
    keys: str | None
    transport: str
    is_insecure: bool


@dataclass(frozen=True)
class Contact:
    """The ways to reach an agent and its sessions."""

    plugin: Links
    address: str
    credentials: KeyPair | None
    server_key: str | None
    is_insecure: bool

    @classmethod
    def of(cls, agent: AgentAddress) -> Contact:
        """Load the transport and read the keys; raise UsageError and PluginError."""
        plugin = load_links(agent.transport)
        credentials = server_key = None
        if agent.keys is not None:
            folder = Path(agent.keys)
            credentials = key_pair(folder, CLIENT, agent.transport)
            server_key = public_key(folder, AGENT, agent.transport)
        return cls(plugin, agent.address, credentials, server_key, agent.is_insecure)

    def dial(self, port: int | None = None) -> Link:
        """Dial the agent, or a session, which listens at another port of the same host."""
        address = self.address if port is None else with_port(self.address, port)
        return self.plugin.dial(
            address, self.credentials, self.server_key, insecure=self.is_insecure
        )

    def ask(self, request: Request, timeout_s: float) -> Reply:
        """Return the agent's reply; raise LinkError."""
        link = self.dial()
        try:
            return ask(self.plugin, link, self.address, request, timeout_s)
        finally:
            link.close()


def _opened(agent: Contact, request: Open) -> Sequence[Link]:
    # The first start fails early if the agent cannot be reached. A restart waits for it.
    agent.ask(GetStatus(), _CONNECT_S if request.epoch == 1 else request.start_timeout_s)
    reply = agent.ask(request, request.start_timeout_s)
    if isinstance(reply, Refused):
        failure = failure_from_record(reply.failure)
        raise failure.exception or LinkError(failure.message, address=agent.address)
    if not isinstance(reply, Opened):
        raise ProtocolError(f"the agent at {agent.address} sent an invalid reply: {reply!r}")
    return [agent.dial(reply.port), agent.dial(reply.port)]


class _Relay:
    """One session on the parent's host. Used by one thread."""

    def __init__(self, body: RelayBody, agent: Contact, links: Sequence[Link]) -> None:
        context, request = body.context, body.request
        keep_freed_chunks()
        self._agent = agent
        self._request = request
        self._address = body.agent.address
        self._path = request.path
        opened = context.endpoint.open_child()
        self._port = ChildPort(opened.table, opened.end, context.progress_table, context.index)
        self._watch = BellWatch(self._port.bell)
        identity = Identity.of_this_process(request.core_version, request.lease_ns)
        self._session = RemoteSession(
            Side.RELAY, identity, request.session, request.epoch, now_ns()
        )
        self._end = DialledSession(agent.plugin, links, self._session)
        space = AddressSpace.mapped(request.ranges)
        home = HomeMemory(space, body.quota, digests=body.digests.open())
        self._frames = FrameRelay(
            self._port,
            context.index,
            home,
            self._session,
            BufferRelay(space, self._session),
            opened.largest_frame_bytes - _HEAD_BYTES,
        )
        stream = None if sys.stderr is None else sys.stderr.fileno()
        self._output = OutputWriter(stream, self._path)
        self._is_ready = False
        self._handled = 0  # messages about frames that have arrived
        self._progress = 0  # that number and those of all acknowledged messages, at the last report
        self._question: Question | None = None

    def connect(self, start: ChildStart) -> None:
        """Wait until the Worker accepts tasks, then report to the parent that it is ready."""
        start.doing(f"connecting to the session at {self._address}")
        while not self._is_ready:
            self._turn()
            self._end.flush(now_ns())
            self._end.wait(_WAIT_S, [])
        start.ready()

    def serve(self) -> None:
        """Pass frames on; raise EndpointClosedError when the parent has closed."""
        watched = [self._watch.descriptor]
        while True:
            self._turn()
            self._watch.arm()  # from here on, a new frame ends the wait
            has_more = self._frames.step()
            self._note_progress(is_comparing=has_more)
            now = now_ns()
            self._end.flush(now)
            self._end.wait(0.0 if has_more else self._timeout_s(now), watched)

    def leave(self, reason: str) -> None:
        """End the session; return when no process of it runs on the other host."""
        session = self._session
        session.close(reason, now_ns())
        # A gateway that was killed cannot confirm its end, but the agent can.
        question = Question(
            self._agent.dial(), EndSession(self._request.session, self._request.epoch)
        )
        while session.advance(now_ns()) < SessionState.OVER:
            self._end.receive(now_ns())
            self._end.flush(now_ns())
            if isinstance(question.reply(), Ended):
                session.confirm_end(now_ns())
            self._end.wait(0.0, [])
            self._agent.plugin.wait([question.link], _END_WAIT_S)
        question.link.close()
        self._end.close()
        self._output.finish()

    def _turn(self) -> None:
        """Handle the messages that have arrived."""
        now = now_ns()
        for message in self._end.receive(now):
            self._handle(message)
        self._check_cut(now)
        if self._session.advance(now) >= SessionState.ENDING:
            raise LinkError(
                f"{self._path}: the session with {self._address} is over: {self._session.reason}",
                address=self._address,
            )

    def _note_progress(self, *, is_comparing: bool) -> None:
        """Let the parent wait longer for the start of a frame, if its inputs or results move.

        A comparison of inputs counts as a move, and so does a cut, whose length the lease bounds.
        The other host may then be silent for two leases: for a cut that is not noticed yet, and for
        copies of inputs.
        """
        session = self._session
        progress = self._handled
        progress += session.control.outbox.acknowledged + session.bulk.outbox.acknowledged
        if progress != self._progress or is_comparing or self._question is not None:
            self._progress = progress
            self._port.permit_silence(2 * self._request.lease_ns)

    def _check_cut(self, now: int) -> None:
        """While the other host is silent, ask its agent whether the session is over there.

        So a killed gateway is noticed at once, and not only after the lease.
        """
        session = self._session
        silence_ns = now - session.control.heard_ns
        if not self._end.is_cut and silence_ns < _SILENT_HEARTBEATS * session.lease.heartbeat_ns:
            if self._question is not None:
                self._question.link.close()
                self._question = None
            return
        if self._question is None:
            request = AwaitEnd(self._request.session, self._request.epoch)
            self._question = Question(self._agent.dial(), request)
        # sends and receives for this link, without waiting
        self._agent.plugin.wait([self._question.link], 0.0)
        if isinstance(self._question.reply(), Ended):
            session.close("its gateway has exited", now)
            session.confirm_end(now)

    def _handle(self, message: Message) -> None:
        if message.kind == MessageKind.READY:
            self._is_ready = True
        elif message.kind == MessageKind.OUTPUT:
            self._output.write(prefixed(self._path, b"".join(message.body)))
        elif message.kind == MessageKind.LOST:
            failure = failure_from_bytes(b"".join(message.body))
            raise failure.exception or LinkError(failure.message, address=self._address)
        else:
            self._handled += 1
            self._frames.handle(message)

    def _timeout_s(self, now: int) -> float:
        deadline_ns = self._session.deadline_ns
        timeout_s = 1.0 if deadline_ns is None else max(deadline_ns - now, 0) / 1e9
        is_asking = self._question is not None
        return min(timeout_s, _WAIT_S) if is_asking or not self._frames.is_idle else timeout_s


def read_reason(address: int) -> str:
    """Return the reason that a relay wrote before its exit; empty if there is none."""
    import ctypes

    content = ctypes.string_at(address, REASON_BYTES)
    (length,) = _LENGTH.unpack_from(content)
    return content[_LENGTH.size : _LENGTH.size + length].decode(errors="replace")


# ---- the printed text of the session ----

PENDING_BYTES_MAX = 1 << 22
_FINISH_S = 1.0


class OutputWriter:
    """Writes text to a descriptor in a thread; its methods never wait for the descriptor.

    A stopped terminal and a pipe that is not read accept no text. If more than ``most_bytes`` of
    text wait, further text is dropped, and a line reports the number of dropped lines. Text that
    the descriptor refuses is lost. ``descriptor``: None if the stream is closed. ``path``: for the
    line about dropped text.
    """

    def __init__(
        self, descriptor: int | None, path: str, most_bytes: int = PENDING_BYTES_MAX
    ) -> None:
        self._descriptor = descriptor
        self._path = path
        self._most_bytes = most_bytes
        self._changed = threading.Condition()
        self._pending: list[bytes] = []
        self._pending_bytes = 0  # includes the text that the thread writes now
        self._dropped = 0  # dropped lines that were not reported yet
        self._is_over = False
        if descriptor is not None:
            start_thread(threading.Thread(target=self._run, name="pto output", daemon=True))

    def write(self, text: str) -> None:
        """Queue the text, which must be whole lines; drop it if too much text waits."""
        if self._descriptor is None or self._is_over:
            return
        content = text.encode()
        with self._changed:
            if self._pending_bytes + len(content) > self._most_bytes:
                self._dropped += content.count(b"\n")
                return
            self._pending.append(content)
            self._pending_bytes += len(content)
            self._changed.notify_all()

    def finish(self, timeout_s: float = _FINISH_S) -> None:
        """Accept no more text; wait until all is written, but at most ``timeout_s``."""
        with self._changed:
            self._is_over = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: not (self._pending_bytes or self._dropped), timeout_s)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._pending or self._dropped or self._is_over)
                if not self._pending and not self._dropped:
                    return
                if self._dropped:
                    self._pending.append(_dropped_line(self._path, self._dropped))
                content, self._pending = b"".join(self._pending), []
                self._pending_bytes, self._dropped = len(content), 0
            self._write(content)
            with self._changed:
                self._pending_bytes -= len(content)
                self._changed.notify_all()

    def _write(self, content: bytes) -> None:
        if self._descriptor is None:
            return
        try:
            while content:
                content = content[os.write(self._descriptor, content) :]
        except OSError:
            return


def _dropped_line(path: str, lines: int) -> bytes:
    return (
        f"[{path}] {lines} lines were dropped, because the standard error stream of the "
        "program did not accept text fast enough\n"
    ).encode()


def prefixed(path: str, lines: bytes) -> str:
    """Return whole lines with the path of their session before each."""
    text = lines.decode(errors="replace").removesuffix("\n")
    return "".join(f"[{path}] {line}\n" for line in text.split("\n"))
