"""The process of an agent that forks gateways.

It has one thread and opens no socket of a link, so a fork is safe. It has already imported the
modules that a Worker needs, so a session starts quickly. The other process of the agent, which
serves clients, sends it a plan with one end of a socket pair for each session.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import socket
import sys
import traceback
from collections.abc import Iterable
from typing import NoReturn

from pto_core.errors import ProtocolError
from pto_core.hierarchy.failures import Failure
from pto_core.hierarchy.processes.starting import interpreter_command
from pto_transport_zmq.remote.failures import failure_to_bytes
from pto_transport_zmq.remote.gateway import AddressInUseError, Gateway, GatewayPlan
from pto_transport_zmq.remote.program_modules import modules_folder, remove_modules

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
    """Return the gateway. If its addresses are in use here, continue in a new interpreter."""
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
