"""The launcher interface: it starts agents on hosts, and ends them.

An agent serves Workers of other hosts, as ``pto agent serve`` does. A launcher decides where agents
run; it has nothing to do with Workers and tasks. ``pto new plugin launcher NAME``
writes one whose agents run on this machine.

``pto_transport_zmq.launchers.AgentProcess`` is an agent that a command of this machine starts. A
launcher for a cluster engine implements the methods of :class:`Launcher` with calls of that engine,
and may use an ``AgentProcess`` on each host.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, runtime_checkable

from pto_core.interfaces.plugin import Plugin

Placement: TypeAlias = Any
"""One agent of a launcher: any hashable object. ``str()`` of it names the host in messages."""


@dataclass(frozen=True)
class AgentCommand:
    """The command that starts an agent. ``client``: the public key of the only permitted client.

    ``transport``: the name of the remote transport. The agent makes its own key pair, prints its
    address and public key, and ends at the end of its standard input.
    """

    client: str
    transport: str

    def arguments(self, bind: str) -> tuple[str, ...]:
        """Return the arguments of ``pto``. ``bind``: the agent's address, such as tcp://0.0.0.0:0.

        A key may contain characters that are special in a shell.
        """
        transport = ("--set", f"remote_transport={self.transport}")
        return ("agent", *transport, "serve", f"--bind={bind}", f"--client={self.client}")


@dataclass(frozen=True)
class PlacedAgent:
    """An agent that listens: the address at which the program reaches it, and its public key."""

    address: str
    key: str


@dataclass(frozen=True)
class Pending:
    """An agent that does not listen yet. ``reason``: one sentence that states what is missing."""

    reason: str


class Launcher(Protocol):
    """Starts agents. One thread of one process calls it, and no call waits longer than 1 s.

    All agents end when the process of the launcher ends, also if it is killed. :meth:`close` may
    wait for a few seconds.
    """

    def place(self, count: int, resources: Mapping[str, float]) -> Sequence[Placement]:
        """Begin to start ``count`` agents, and return one placement for each.

        ``resources``: the amounts that each agent needs, such as ``{"CPU": 2}``; a launcher that
        cannot reserve resources ignores them. Raises :class:`~pto_core.errors.CapacityError` if
        this many agents can never be placed; then none was started.
        """

    def address(self, placement: Placement) -> PlacedAgent | Pending:
        """Return the address and key of an agent, or the reason why it does not listen yet."""

    def lost(self, placement: Placement) -> str | None:
        """Return the reason why an agent has ended or cannot start; None while there is none.

        This is a report and no proof: an agent that cannot be reached may still run.
        """

    def release(self, placement: Placement) -> None:
        """Begin to end an agent with all its sessions.

        Afterwards the other methods must not be called with this placement. A second release, and
        the release of an agent that was lost, do nothing.
        """

    def close(self) -> None:
        """Release all agents, and wait until the launcher has ended them. A second call is fine."""


@runtime_checkable
class LauncherPlugin(Plugin, Protocol):
    """A plugin of the group ``pto.launchers``. No capability is defined yet."""

    def open(self, agent: AgentCommand, config: Mapping[str, Any]) -> Launcher:
        """Return a launcher that starts agents with ``agent``. May wait for a cluster.

        ``config`` has all settings of the core by key. Raises
        :class:`~pto_core.errors.UsageError` for a setting that is missing or invalid.
        """
