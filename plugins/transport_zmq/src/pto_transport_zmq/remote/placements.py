"""The parent's side of a launcher: it asks the process of the launcher for hosts.

A host that was released, or that the launcher lost, is never used again: the next request places
another host.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import shutil
import socket
import subprocess
import tempfile
import time
import weakref
from collections.abc import Callable, Iterator

from pto_core import log
from pto_core.errors import ChildStartError
from pto_core.worker.processes import close_parent_only, parent_only
from pto_core.worker.processes.starting import interpreter_command
from pto_core.worker.settings import WorkerSettings
from pto_transport_zmq.remote.launcher_process import (
    MESSAGE_BYTES,
    Event,
    Place,
    Placed,
    PlacementFailed,
    Release,
    Start,
    Waiting,
    decode_event,
)
from pto_transport_zmq.remote.relay import AgentAddress
from pto_transport_zmq.remote.values import encoded, failure_from_record

_END_S = 10.0
_WARNING_S = 5.0


class LauncherClient:
    """The hosts of one template, and the process of their launcher.

    The process starts with the first request, and again with the next request after its exit. All
    its agents end with it. One thread at a time may use this object.
    """

    def __init__(self, settings: WorkerSettings) -> None:
        assert settings.host_request is not None
        self._request = settings.host_request
        self._config = settings.config
        self._process: _LauncherProcess | None = None
        # Of each host that was not released: the last event, or why it cannot be placed.
        self._hosts: dict[int, Event | BaseException | None] = {}
        self._last = 0  # the number of the last host

    @property
    def launcher(self) -> str:
        """The name of the launcher."""
        return self._request.launcher

    @property
    def timeout_s(self) -> float:
        """The time limit for the placement of a host, in seconds."""
        limit: float = self._config["child_start_timeout_s"]
        return limit

    def begin(self) -> int:
        """Begin to place a host; return its number."""
        self._receive()
        if self._process is None:
            self._process = _LauncherProcess(self._start)
        self._last += 1
        self._hosts[self._last] = None
        self._process.send(Place(self._last))
        return self._last

    def release(self, number: int) -> None:
        """End the agent of a host."""
        del self._hosts[number]
        if self._process is not None:
            self._process.send(Release(number))

    def agent(self, number: int) -> AgentAddress | None:
        """Return the address and key of the agent of a host; None while it is being placed.

        Raises the error of the launcher, also if the agent has ended since.
        """
        self._receive()
        known = self._hosts[number]
        if isinstance(known, BaseException):
            raise known
        if not isinstance(known, Placed):
            return None
        return AgentAddress(
            known.address, known.keys, self._config["remote_transport"], is_insecure=False
        )

    def waits_for(self, number: int) -> str:
        """Return the reason why a host is not placed yet."""
        known = self._hosts[number]
        return known.reason if isinstance(known, Waiting) else "the launcher is starting"

    def close(self) -> None:
        """End the launcher's process, which ends all agents; a second call does nothing."""
        process, self._process = self._process, None
        if process is not None:
            process.end()

    def _start(self, folder: str) -> Start:
        settings = dict(self._config)
        return Start(self._request, settings["remote_transport"], settings, folder, os.getpid())

    def _receive(self) -> None:
        """Handle the messages of the process, and its exit."""
        if self._process is None:
            return
        for event in self._process.events():
            if event.number in self._hosts:  # otherwise it was released meanwhile
                known = _exception_of(event) if isinstance(event, PlacementFailed) else event
                self._hosts[event.number] = known
        if self._process.has_ended:
            exit_code = self._process.end()
            self._process = None
            text = f"the process of the launcher has ended with exit code {exit_code}"
            error = ChildStartError(f"{text}; the standard error stream has its messages")
            for number in self._hosts:
                self._hosts[number] = error


def _exception_of(event: PlacementFailed) -> BaseException:
    failure = failure_from_record(event.failure)
    return failure.exception or ChildStartError(f"{failure.type_name}: {failure.message}")


class PlacedHost:
    """The host of one child: at most one placement at a time.

    ``is_placing``: whether the host is being placed; any thread may read it. ``clock`` returns
    seconds.
    """

    def __init__(
        self, placements: LauncherClient, path: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._placements = placements
        self._path = path
        self._clock = clock
        self._number: int | None = None
        self._begun = 0.0
        self._has_warned = False
        self.is_placing = False

    def agent(self) -> AgentAddress | None:
        """Return the address and key of the agent; None while the host is being placed.

        The first call after a release begins to place a host. A placement that takes longer than
        5 s is logged once. Raises ChildStartError.
        """
        placements = self._placements
        if self._number is None:
            self._number = placements.begin()
            self._begun = self._clock()
            self._has_warned = False
            self.is_placing = True
        try:
            found = placements.agent(self._number)
        except Exception as error:
            raise self._error(f"has no host for it: {error}") from error
        if found is None:
            self._check_time(self._clock() - self._begun, placements.waits_for(self._number))
        else:
            self.is_placing = False
        return found

    def loss(self) -> str | None:
        """Return the reason that the launcher reports for the end of the agent, or None."""
        if self._number is None:
            return None
        try:
            self._placements.agent(self._number)
        except Exception as error:  # noqa: BLE001 - an error of a plugin
            return str(error)
        return None

    def _check_time(self, waited_s: float, reason: str) -> None:
        limit_s = self._placements.timeout_s
        if waited_s > limit_s:
            raise self._error(
                f"has placed no host after {limit_s:g} s: {reason}; raise child_start_timeout_s "
                "if it needs more time"
            )
        if waited_s > _WARNING_S and not self._has_warned:
            self._has_warned = True
            log.get(__name__).warning(
                "host not placed yet",
                child=self._path,
                launcher=self._placements.launcher,
                reason=reason,
                limit_s=limit_s,
            )

    def release(self) -> None:
        """End the agent; a second call does nothing."""
        self.is_placing = False
        number, self._number = self._number, None
        if number is not None:
            self._placements.release(number)

    def _error(self, what: str) -> ChildStartError:
        return ChildStartError(
            f"{self._path}: the launcher {self._placements.launcher!r} {what}", path=self._path
        )


class _LauncherProcess:
    """The process of a launcher, with a socket to it and its folder of keys.

    ``make_start`` returns the first message, from the name of the folder. The process ends with
    this object.
    """

    def __init__(self, make_start: Callable[[str], Start]) -> None:
        folder = tempfile.mkdtemp(prefix="pto-launcher-")
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            ours.setblocking(False)
            self._socket = parent_only(ours.detach())
            # In a session of its own: Ctrl-C of a terminal must not stop it.
            self._process = subprocess.Popen(
                interpreter_command("pto_transport_zmq.remote.launcher_process:main"),
                stdin=theirs.fileno(),
                start_new_session=True,
            )
        self._end = weakref.finalize(
            self, _end_process, self._process, self._socket, folder, os.getpid()
        )
        self.has_ended = False
        self._write(pickle.dumps(make_start(folder)))

    def send(self, order: Place | Release) -> None:
        """Send an order. If the process has exited, :meth:`events` detects it."""
        self._write(encoded(order))

    def events(self) -> Iterator[Event]:
        """Yield the messages that have arrived. Set ``has_ended`` if no more will."""
        while True:
            try:
                content = os.read(self._socket, MESSAGE_BYTES)
            except BlockingIOError:
                return
            except ConnectionError:
                content = b""
            if not content:
                self.has_ended = True
                return
            yield decode_event(content)

    def end(self) -> int | None:
        """End the process and return its exit code; a second call does nothing."""
        self._end()
        return self._process.returncode

    def _write(self, content: bytes) -> None:
        with contextlib.suppress(ConnectionError):
            os.write(self._socket, content)


def _end_process(
    process: subprocess.Popen[bytes], descriptor: int, folder: str, owner: int
) -> None:
    if os.getpid() != owner:
        return  # this is a copy in a forked process
    close_parent_only(descriptor)
    try:
        process.wait(_END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    shutil.rmtree(folder, ignore_errors=True)
