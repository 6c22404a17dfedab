"""A remote Worker for its parent's process: sessions, the relay's body, its exit, and the fence."""

from __future__ import annotations

import contextlib
import itertools
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from pto_core.errors import PtoError
from pto_core.worker.children import ChildContext, NestedWorker
from pto_core.worker.processes import ChildExit
from pto_core.worker.processes.starting import interpreter_command
from pto_core.worker.registry import Registration
from pto_transport_zmq.link.interface import with_port
from pto_transport_zmq.remote.agent_messages import Ended, EndSession, Open, build
from pto_transport_zmq.remote.blueprint import blueprint_of, shipped
from pto_transport_zmq.remote.keys import AGENT, public_key
from pto_transport_zmq.remote.lease import Lease
from pto_transport_zmq.remote.memory import DigestTable
from pto_transport_zmq.remote.placements import LauncherClient, PlacedHost
from pto_transport_zmq.remote.program_modules import (
    UsedModule,
    module_sources,
    top_levels,
    used_modules,
)
from pto_transport_zmq.remote.relay import (
    SESSION_OVER,
    AgentAddress,
    Contact,
    RelayBody,
    read_reason,
)

_SECOND_NS = 1_000_000_000


class AgentPeer(NamedTuple):
    """A host as others reach it: the address, transport, public key and lease of its agent."""

    address: str
    transport: str
    key: str | None
    lease_ns: int

    def at(self, port: int) -> str:
        """Return the address of a port of the host."""
        return with_port(self.address, port)


class RelayedChild:
    """A child on another host. Each start of its relay is an epoch of the same session."""

    def __init__(
        self, worker: NestedWorker, path: str, placements: LauncherClient | None = None
    ) -> None:
        """Make a child. ``placements`` places its host if its Worker has no address."""
        self._worker = worker
        self._path = path
        self._reason = 0
        self.fence = SessionFence()
        self.placements = placements
        self._agent: AgentAddress | None = None
        host, config = worker.settings.other_host, worker.settings.config
        assert host is not None
        if placements is not None:
            self._host = PlacedHost(placements, path)
        elif host.address is not None:
            is_insecure = config["remote_insecure"]
            self._use(
                AgentAddress(host.address, host.keys, config["remote_transport"], is_insecure)
            )

    def is_placed(self) -> bool:
        """Return whether the child has a host. Otherwise one is being placed.

        Does not wait. Raises ChildStartError if no host can be placed.
        """
        if self.placements is not None:
            agent = self._host.agent()
            if agent is None:
                return False
            if agent != self._agent:
                self._use(agent)
        return True

    @property
    def address(self) -> str:
        """The address of the agent of its host, which is placed."""
        assert self._agent is not None
        return self._agent.address

    @property
    def is_placing(self) -> bool:
        """Whether a launcher is placing its host. Any thread may ask."""
        return self.placements is not None and self._host.is_placing

    def agent_loss(self) -> str | None:
        """Return why the agent has ended, if its launcher has noticed that; otherwise None."""
        return None if self.placements is None else self._host.loss()

    def release(self) -> None:
        """End the agent of a placed host; a second call, or one for another host, does nothing."""
        if self.placements is not None:
            self._host.release()

    def _use(self, agent: AgentAddress) -> None:
        """Begin a new session with an agent."""
        self._agent = agent
        self._session = os.urandom(16)
        self._epoch = 0

    def body(
        self,
        context: ChildContext,
        registrations: Sequence[Registration],
        ranges: Sequence[tuple[int, int]],
        buffers: tuple[int, int],
        reason: int,
        digests: tuple[int, int, int],
        queue_bytes: int,
        window: int,
    ) -> RelayBody:
        """Return the body of the next relay; see the core's ``RemoteChild``."""
        settings = self._worker.settings
        config = settings.config
        assert settings.other_host is not None
        assert self._agent is not None
        self._epoch += 1
        self._reason = reason
        modules = module_sources(settings.other_host.ship)
        request = Open(
            session=self._session,
            epoch=self._epoch,
            path=self._path,
            core_version=build(),
            python=sys.version_info[:2],
            lease_ns=self._lease_ns,
            blueprint=blueprint_of(self._worker),
            callables=shipped(registrations),
            ranges=list(ranges),
            buffers=buffers,
            queue_bytes=queue_bytes,
            start_timeout_s=config["child_start_timeout_s"],
            memory=config["remote_memory_limit"],
            buffer_memory=config["remote_buffer_limit"],
            tasks=window,
            modules=modules,
            uses=used_modules(self._targets(registrations), top_levels(modules)),
        )
        agent, lease_ns = self._agent, request.lease_ns
        self.fence.name = RemoteSessionName(agent, self._session, self._epoch, lease_ns)
        quota = config["remote_memory_limit"]
        return RelayBody(context, agent, request, quota, reason, DigestTable(*digests))

    def used_by(self, registration: Registration) -> list[UsedModule]:
        """Return the modules that a callable uses, for the comparison with the other host."""
        assert self._worker.settings.other_host is not None
        if registration.workers is not None:
            return []  # its code is on the other host only
        return used_modules([registration.target], self._worker.settings.other_host.ship)

    def _targets(self, from_above: Iterable[Registration]) -> list[object]:
        """Return the callables of the Worker, and the callables that its parent registered for it.

        Callables that exist only on the other host are left out.
        """
        below = (one.registry.registrations() for one in _all_below(self._worker))
        found = itertools.chain(from_above, *below)
        return [one.target for one in found if one.workers is None]

    def peer(self) -> AgentPeer:
        """Return the address for other hosts; raise UsageError if the key cannot be read."""
        agent = self._agent
        assert agent is not None
        keys = None if agent.keys is None else public_key(Path(agent.keys), AGENT, agent.transport)
        return AgentPeer(agent.address, agent.transport, keys, self._lease_ns)

    @property
    def _lease_ns(self) -> int:
        lease_s: float = self._worker.settings.config["remote_lease_s"]
        return round(lease_s * _SECOND_NS)

    def exit_error(self, ended: ChildExit) -> PtoError:
        """Return the error that explains the exit of a relay."""
        reason = read_reason(self._reason) if ended.exit_code == SESSION_OVER else ""
        if not reason:
            return ended.died_error()
        return ended.error(reason.removeprefix(f"{ended.path}: "))


def _all_below(worker: NestedWorker) -> Iterator[NestedWorker]:
    """Yield a Worker and all Workers below it."""
    yield worker
    for one in worker.nested:
        yield from _all_below(one)


# ---- the fence: it delays the report of a loss until the remote session is over ----
#
# A relay that exits by itself has waited for the end of its session. A killed relay has not: then
# another program asks the agent to end the session, or waits until the lease has passed.

_TRY_S = 1.0


@dataclass(frozen=True)
class RemoteSessionName:
    """One epoch of a session, and the agent that serves it."""

    agent: AgentAddress
    session: bytes
    epoch: int
    lease_ns: int


class SessionFence:
    """A fence, see ``pto_core.worker.remote_transport``. ``name``: the newest epoch."""

    def __init__(self) -> None:
        self.name: RemoteSessionName | None = None
        self._program: subprocess.Popen[bytes] | None = None
        self._until = 0.0  # end of the lease: the session is over then, even if the program fails

    def begin(self, ended: ChildExit) -> None:
        """Start the program that ends the session, if its relay has not done so."""
        name = self.name
        if ended.exit_code in (0, SESSION_OVER) or name is None:
            return
        command = interpreter_command(
            f"{__name__}:main",
            name.agent.address,
            name.agent.keys or "",
            name.agent.transport,
            int(name.agent.is_insecure),
            name.session.hex(),
            name.epoch,
            name.lease_ns,
        )
        self._program = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        self._until = time.monotonic() + Lease(name.lease_ns).relay_ns / 1e9

    def is_over(self) -> bool:
        """Return whether the session is over."""
        if self._program is not None:
            code = self._program.poll()
            if code is None or (code and time.monotonic() < self._until):
                return False
        self._program = None
        return True


def main() -> None:
    """End a session: return when its agent has confirmed it, or when the lease has passed."""
    address, keys, transport, is_insecure, session, epoch, lease_ns = sys.argv[1:]
    until = time.monotonic() + Lease(int(lease_ns)).relay_ns / 1e9
    contact = Contact.of(AgentAddress(address, keys or None, transport, bool(int(is_insecure))))
    request = EndSession(bytes.fromhex(session), int(epoch))
    while (left_s := until - time.monotonic()) > 0:
        with contextlib.suppress(PtoError):
            if isinstance(contact.ask(request, min(_TRY_S, left_s)), Ended):
                return
