"""The agent of a host: it starts sessions for the clients that it permits.

An agent has two processes. :class:`Agent` serves clients over a link. :class:`SessionHost` forks
gateways: it has one thread and opens no socket of a link, so a fork is safe. Each session has a
socket pair. All processes of the session inherit its far end, so the end of file at the near end
proves that the session is over::

    clients <-- link --> Agent -- plan, far end of a socket pair --> SessionHost -- fork --> gateway
                           ^                                                                   |
                           +---------------- reports; end of file: the session is over --------+
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

import msgspec

from pto_core import log
from pto_core.errors import ProtocolError, PtoError, UsageError
from pto_core.worker.failures import Failure
from pto_core.worker.processes.starting import interpreter_command
from pto_transport_zmq.link.interface import (
    KeyPair,
    LinkMessage,
    Links,
    Listener,
    Peer,
    split_address,
)
from pto_transport_zmq.link.loading import load_links
from pto_transport_zmq.remote.agent_messages import (
    AwaitEnd,
    AwaitOpened,
    Done,
    Ended,
    EndSession,
    GetStatus,
    Open,
    Opened,
    Refused,
    Reply,
    SessionStatus,
    Status,
    Stop,
    Unknown,
    build,
    decode_request,
    pack,
    pack_head,
    unpack,
)
from pto_transport_zmq.remote.blueprint import check_python
from pto_transport_zmq.remote.gateway import AddressInUseError, Gateway, GatewayPlan
from pto_transport_zmq.remote.program_modules import modules_folder, remove_modules
from pto_transport_zmq.remote.rights import Needs, Rights
from pto_transport_zmq.remote.session import check_build
from pto_transport_zmq.remote.values import failure_from_bytes, failure_to_bytes, failure_to_record

_KILL_S = 1.0  # seconds from the request to end a session to the kill of its processes
_TURN_S = 0.2
_ENDS_MAX = 4096
_STANDARD_INPUT = 0


@dataclass
class _Session:
    """A session from its start until all of its processes have exited."""

    request: Open
    rights: Rights
    channel: socket.socket
    begun: float = field(default_factory=time.monotonic)
    port: int = 0
    failure: Refused | None = None
    ending: float | None = None  # time of the request to end it
    # Requests that are answered when the start is over.
    waiting: set[tuple[Peer, bytes]] = field(default_factory=set)

    def description(self) -> dict[str, Any]:
        """Return the values that identify the session in the log."""
        return {
            "session": self.request.path,
            "client": self.rights.name,
            "epoch": self.request.epoch,
        }


class EndedSessions:
    """The newest epoch that is over, for each of the ``most`` sessions that ended last."""

    def __init__(self, most: int = _ENDS_MAX) -> None:
        self._most = most
        # By session. The session that ended last is the last entry.
        self._epochs: dict[bytes, int] = {}

    def add(self, name: bytes, epoch: int) -> None:
        """Record the end of an epoch; beyond ``most`` sessions, forget the oldest end."""
        self._epochs.pop(name, None)
        self._epochs[name] = epoch
        if len(self._epochs) > self._most:
            del self._epochs[next(iter(self._epochs))]

    def newest(self, name: bytes) -> int:
        """Return the newest epoch of a session that is over; 0 if none is known."""
        return self._epochs.get(name, 0)


class Agent:
    """Serves clients, on one thread. ``clients``: the rights of each, by public key."""

    def __init__(
        self,
        plugin: Links,
        listener: Listener,
        credentials: KeyPair | None,
        clients: dict[str | None, Rights],
        host: socket.socket,
        *,
        insecure: bool,
        input_descriptor: int | None = None,
    ) -> None:
        self._plugin = plugin
        # The descriptor whose end of file stops the agent; None if there is none, or after it.
        self._input = input_descriptor
        self._insecure = insecure
        self._listener = listener
        self._credentials = credentials
        self._clients = clients
        self._host = host
        self._sessions: dict[bytes, _Session] = {}
        self._over = EndedSessions()
        self._is_draining = False
        self._log = log.get(__name__)
        self._rare = log.RareWarnings(__name__)
        self.is_stopped = False

    def run(self) -> None:
        """Serve until :meth:`stop`, and until all sessions are over."""
        while not (self.is_stopped and not self._sessions):
            channels = {one.channel.fileno(): name for name, one in self._sessions.items()}
            watched = [*channels, self._host.fileno()]
            if self._input is not None:
                watched.append(self._input)
            ready = self._plugin.wait([self._listener], _TURN_S, watched)
            if self._host.fileno() in ready.descriptors:
                self._log.error("agent is ending", reason="the process that forks gateways exited")
                raise ProcessLookupError("the process that forks gateways exited")
            while (message := self._listener.receive()) is not None:
                self._receive(message)
            for descriptor in ready.descriptors:
                if descriptor == self._input:
                    self._read_input(descriptor)
                else:
                    self._read_report(channels[descriptor])
            self._kill_late()
            self._rare.write()

    def stop(self, reason: str) -> None:
        """End all sessions, then the agent."""
        if not self.is_stopped:
            self._log.info("agent is ending", reason=reason, sessions=len(self._sessions))
        self.is_stopped = True
        for name in list(self._sessions):
            self._end(name)

    def _read_input(self, descriptor: int) -> None:
        """Ignore the text of the input; stop at its end."""
        if not os.read(descriptor, 4096):
            self._input = None
            self.stop("the end of its standard input")

    def _receive(self, message: LinkMessage) -> None:
        peer = message.peer
        rights = self._clients.get(peer.key)
        if rights is None:
            return
        try:
            number, sender, content = unpack(message.parts)
        except ProtocolError as error:
            self._log_invalid(rights, error)
            return
        try:
            request = decode_request(content)
        except ProtocolError as error:
            self._log_invalid(rights, error)
            if sender != build():
                self._listener.send(peer, [pack_head(number)])
            return
        try:
            reply = self._reply(request, rights, peer, number)
        except Exception as error:  # noqa: BLE001 - the client receives it
            self._rare.add("refused request", client=rights.name, reason=str(error))
            reply = _refused(error)
        if reply is not None:
            self._listener.send(peer, pack(number, reply))

    def _reply(self, request: object, rights: Rights, peer: Peer, number: bytes) -> Reply | None:
        if isinstance(request, Open):
            return self._open(request, rights, peer, number)
        if isinstance(request, EndSession):
            return self._end_epoch(request)
        if isinstance(request, AwaitEnd):
            # The client repeats the request until the session is over.
            return Ended() if self._is_over(request) else None
        if isinstance(request, AwaitOpened):
            return self._await_opened(request, peer, number)
        if isinstance(request, GetStatus):
            return self._status(rights)
        rights.check_admin("stop" if isinstance(request, Stop) else "drain")
        self._is_draining = True
        if isinstance(request, Stop):
            self.stop(f"client {rights.name!r} requested it")
        return Done()

    def _log_invalid(self, rights: Rights, error: ProtocolError) -> None:
        self._rare.add("invalid request", client=rights.name, reason=str(error))

    # ---- sessions ----

    def _open(self, request: Open, rights: Rights, peer: Peer, number: bytes) -> Reply | None:
        known = self._sessions.get(request.session)
        if known is not None and known.request.epoch == request.epoch:
            return _opened(known, peer, number)
        if self._newest(request.session) >= request.epoch:
            raise UsageError(f"epoch {request.epoch} of the session is over")
        # End the earlier epoch. The client repeats the request until that epoch is over.
        if known is not None:
            self._end(request.session)
            return None
        if self._is_draining:
            raise UsageError(
                "this agent accepts no sessions any more, because it was asked to drain; start "
                "another one, or use another host"
            )
        session = self._sessions[request.session] = self._start(request, rights)
        self._log.info(
            "session started",
            **session.description(),
            processes=request.blueprint.process_count + 1,
        )
        return _opened(session, peer, number)

    def _await_opened(self, request: AwaitOpened, peer: Peer, number: bytes) -> Reply | None:
        known = self._sessions.get(request.session)
        if known is None:
            return Unknown()
        is_same = known.request.epoch == request.epoch
        return _opened(known, peer, number) if is_same else None

    def _newest(self, name: bytes) -> int:
        """Return the newest epoch of a session that this agent has started; 0 if there is none."""
        known = self._sessions.get(name)
        return self._over.newest(name) if known is None else known.request.epoch

    def _check_versions(self, request: Open) -> None:
        """Refuse another version of the core, and code of functions from another Python version."""
        check_build(parent=request.core_version, host=build())
        check_python(request.python, (*request.blueprint.all_callables(), *request.callables))

    def _start(self, request: Open, rights: Rights) -> _Session:
        self._check_versions(request)
        others = [_needs(one.request) for one in self._sessions.values() if one.rights is rights]
        used = Needs(*map(sum, zip(Needs(), *others, strict=True)))
        rights.check_quotas(_needs(request), used)
        permitted = msgspec.structs.replace(
            request,
            blueprint=rights.permitted(request.blueprint),
            callables=rights.permitted_callables(request.callables),
            modules=rights.permitted_modules(request.modules),
        )
        host, _ = split_address(self._listener.address)
        host = f"[{host}]" if ":" in host else host
        plan = GatewayPlan(
            permitted,
            rights,
            self._plugin.name,
            f"tcp://{host}:0",
            self._credentials,
            self._insecure,
        )
        return _Session(request, rights, send_plan(self._host, request.session, plan))

    def _read_report(self, name: bytes) -> None:
        session = self._sessions[name]
        try:
            report = read_report(session.channel)
        except (EOFError, OSError):
            self._finish(name)
            return
        if report is None:
            return
        kind, value = report
        reply: Reply
        if kind == "ready":
            assert isinstance(value, str)
            session.port = split_address(value)[1]
            reply = Opened(session.port)
        else:
            assert isinstance(value, bytes)
            reply = session.failure = Refused(failure_to_record(failure_from_bytes(value)))
        self._tell(session, reply)

    def _finish(self, name: bytes) -> None:
        """Forget a session whose processes have all exited."""
        session = self._sessions.pop(name)
        session.channel.close()
        self._over.add(name, session.request.epoch)
        seconds = round(time.monotonic() - session.begun, 1)
        self._log.info("session ended", **session.description(), seconds=seconds)
        reason = UsageError("the session was ended during its start, or its gateway was killed")
        self._tell(session, session.failure or _refused(reason))

    def _tell(self, session: _Session, reply: Reply) -> None:
        for peer, number in session.waiting:
            self._listener.send(peer, pack(number, reply))
        session.waiting.clear()

    def _end_epoch(self, request: EndSession) -> Reply | None:
        if self._is_over(request):
            return Ended()
        known = self._sessions.get(request.session)
        if known is not None and known.request.epoch <= request.epoch:
            self._end(request.session)
        return None  # the client repeats the request until the session is over

    def _is_over(self, request: EndSession | AwaitEnd) -> bool:
        """Return whether this agent has started the session, and none of its processes exists.

        An agent confirms only ends of sessions that it has started. For other sessions, the gateway
        of an earlier agent may still run, and the client waits for the lease.
        """
        known = self._sessions.get(request.session)
        if known is not None and known.request.epoch <= request.epoch:
            return False
        return self._newest(request.session) >= request.epoch

    def _end(self, name: bytes) -> None:
        session = self._sessions[name]
        if session.ending is None:
            session.ending = time.monotonic()
            session.channel.shutdown(socket.SHUT_WR)

    def _kill_late(self) -> None:
        for name, session in self._sessions.items():
            if session.ending is not None and time.monotonic() - session.ending > _KILL_S:
                session.ending = time.monotonic()
                self._host.sendall(pickle.dumps(("kill", name, "")))

    def _status(self, rights: Rights) -> Status:
        return Status(
            build(),
            self._listener.address,
            self._is_draining,
            [
                SessionStatus(
                    one.request.path,
                    one.rights.name,
                    one.request.epoch,
                    one.request.blueprint.process_count + 1,
                    time.monotonic() - one.begun,
                )
                for one in self._sessions.values()
                if rights.admin or one.rights is rights
            ],
        )


def _needs(request: Open) -> Needs:
    memory = request.memory + request.buffer_memory
    return Needs(request.blueprint.process_count + 1, memory, request.tasks)


def _opened(session: _Session, peer: Peer, number: bytes) -> Reply | None:
    """Return the reply to the client of a session; None if it follows later."""
    if session.ending is not None:
        return _refused(UsageError("the session was ended during its start"))
    if session.port or session.failure:
        return session.failure or Opened(session.port)
    session.waiting.add((peer, number))
    return None


def _refused(error: BaseException) -> Refused:
    return Refused(failure_to_record(Failure.of(error)))


def serve(
    transport: str,
    bind: str,
    credentials: KeyPair | None,
    clients: Sequence[Rights],
    started: Callable[[str], None],
    *,
    insecure: bool,
    ends_with_input: bool = False,
) -> None:
    """Run an agent until SIGTERM, SIGINT or a request to stop. ``started`` receives the address.

    ``ends_with_input``: the agent also stops at the end of its standard input, and its sessions
    have an empty standard input.
    """
    theirs, ours = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    server = os.fork()
    if server == 0:
        theirs.close()
        code = 1
        try:
            _serve_clients(
                *(transport, bind, credentials, clients, started, ours),
                insecure=insecure,
                input_descriptor=_STANDARD_INPUT if ends_with_input else None,
            )
            code = 0
        except PtoError as error:
            log.show(f"pto: error: {error}", "error")
        finally:
            os._exit(code)
    ours.close()
    if ends_with_input:
        with open(os.devnull) as empty:
            os.dup2(empty.fileno(), _STANDARD_INPUT)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: os.kill(server, signal.SIGTERM))
    SessionHost(theirs).run()
    raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(server, 0)[1]))


def _serve_clients(
    transport: str,
    bind: str,
    credentials: KeyPair | None,
    clients: Sequence[Rights],
    started: Callable[[str], None],
    host: socket.socket,
    *,
    insecure: bool,
    input_descriptor: int | None,
) -> None:
    plugin = load_links(transport)
    keys = [] if credentials is None else [one.key for one in clients]
    listener = plugin.listen(bind, credentials, keys, insecure=insecure)
    by_key: dict[str | None, Rights] = {one.key: one for one in clients}
    if credentials is None:
        by_key = {None: clients[0]}
    agent = Agent(
        *(plugin, listener, credentials, by_key, host),
        insecure=insecure,
        input_descriptor=input_descriptor,
    )
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda received, _: agent.stop(signal.Signals(received).name))
    started(listener.address)
    try:
        agent.run()
    finally:
        listener.close(linger_s=0.2)


# ---- the process that forks gateways ----
#
# It has already imported the modules that a Worker needs, so a session starts quickly.

_MESSAGE_BYTES = 1 << 16
_REAP_S = 0.5
_TRIES = 3


class SessionHost:
    """Forks a gateway for each plan that arrives, until the serving process has exited."""

    def __init__(self, requests: socket.socket) -> None:
        self._requests = requests
        # By process id: the session and the folder of modules of each process that is not yet
        # reaped.
        self._gateways: dict[int, tuple[bytes, str]] = {}

    def run(self) -> None:
        """Serve until the other process closes its end; then kill all gateways."""
        self._requests.settimeout(_REAP_S)
        while True:
            self._reap()
            try:
                message, files, _, _ = socket.recv_fds(self._requests, _MESSAGE_BYTES, 2)
            except TimeoutError:
                continue
            if not message:
                break
            self._handle(message, files)
        self._kill(self._gateways)
        for pid, (_, folder) in self._gateways.items():
            os.waitpid(pid, 0)
            remove_modules(folder)

    def _handle(self, message: bytes, files: list[int]) -> None:
        operation, name, folder = pickle.loads(message)
        if operation == "kill":
            self._kill(pid for pid, (session, _) in self._gateways.items() if session == name)
        elif operation == "start":
            plan_file, agent = files
            pid = os.fork()
            if pid == 0:
                self._requests.close()
                serve_plan(plan_file, agent, tries=_TRIES)
            for descriptor in files:
                os.close(descriptor)
            self._gateways[pid] = name, folder

    def _kill(self, pids: Iterable[int]) -> None:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)

    def _reap(self) -> None:
        for pid in list(self._gateways):
            if os.waitpid(pid, os.WNOHANG)[0]:
                _, folder = self._gateways.pop(pid)
                remove_modules(folder)  # a killed gateway has not removed its folder


def serve_plan(plan_file: int, agent: int, tries: int) -> NoReturn:
    """Run the gateway of a plan in this process, and exit."""
    code = 1
    folder = ""
    channel = socket.socket(fileno=agent)
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        os.lseek(plan_file, 0, os.SEEK_SET)
        with os.fdopen(os.dup(plan_file), "rb") as opened:
            plan, folder = pickle.load(opened)
        gateway = _made(plan, channel, _captured_streams(), folder, plan_file, tries)
        channel.sendall(pickle.dumps(("ready", gateway.address)))
        gateway.serve()
        code = 0
    except BaseException as error:  # noqa: BLE001 - the client receives it
        with contextlib.suppress(OSError):
            channel.sendall(pickle.dumps(("failed", failure_to_bytes(Failure.of(error)))))
        traceback.print_exc()
    finally:
        remove_modules(folder)
        os._exit(code)


def _captured_streams() -> list[int]:
    """Redirect standard output and error to pipes; return the ends of the pipes for reading."""
    read_ends = []
    for stream in (1, 2):
        read_end, write_end = os.pipe()
        os.dup2(write_end, stream)
        os.close(write_end)
        read_ends.append(read_end)
    return read_ends


def _made(
    plan: GatewayPlan,
    channel: socket.socket,
    outputs: list[int],
    folder: str,
    plan_file: int,
    tries: int,
) -> Gateway:
    """Return the gateway, or start again in a new interpreter if an address is already in use.

    The gateway needs the memory addresses of the parent; another interpreter may have them free.
    """
    try:
        return Gateway(plan, channel, outputs, folder)
    except AddressInUseError:
        if tries == 0:
            raise
    for descriptor in (plan_file, channel.fileno()):
        os.set_inheritable(descriptor, True)
    numbers = plan_file, channel.fileno(), tries - 1
    # replaces this process
    os.execv(sys.executable, interpreter_command(f"{__name__}:serve_again", *numbers))
    raise AssertionError


def serve_again() -> NoReturn:
    """Run a gateway in a new interpreter."""
    plan_file, agent, tries = map(int, sys.argv[1:])
    serve_plan(plan_file, agent, tries)


def send_plan(requests: socket.socket, name: bytes, plan: GatewayPlan) -> socket.socket:
    """Ask the session host to start a gateway; return the agent's end of its socket."""
    ours, theirs = socket.socketpair()
    file = os.memfd_create("pto-plan", os.MFD_CLOEXEC)
    folder = modules_folder()
    try:
        with os.fdopen(file, "wb", closefd=False) as opened:
            pickle.dump((plan, folder), opened)
        message = pickle.dumps(("start", name, folder))
        socket.send_fds(requests, [message], [file, theirs.fileno()])
    finally:
        theirs.close()
        os.close(file)
    ours.setblocking(False)
    return ours


def read_report(channel: socket.socket) -> tuple[str, bytes | str] | None:
    """Return the report of a gateway: ready or failed; None if nothing has arrived.

    Raises EOFError when all processes of the session have exited.
    """
    try:
        message = channel.recv(1 << 24)
    except BlockingIOError:
        return None
    if not message:
        raise EOFError
    kind, value = pickle.loads(message)
    if kind not in ("ready", "failed"):
        raise ProtocolError(f"a gateway sent an unknown report: {kind!r}")
    return kind, value
