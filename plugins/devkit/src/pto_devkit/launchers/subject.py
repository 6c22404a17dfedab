"""The launcher under test, loaded by name, and an open launcher that times its calls."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from pto_core import plugins
from pto_core.config import Config, load_core
from pto_core.errors import LinkError
from pto_core.interfaces import (
    AgentCommand,
    LauncherPlugin,
    Pending,
    PlacedAgent,
    Placement,
)
from pto_devkit.checks import expect
from pto_devkit.transports import processes
from pto_transport_zmq.link.interface import KeyPair, Links
from pto_transport_zmq.link.loading import load_links
from pto_transport_zmq.remote.agent_messages import GetStatus, Reply, Request, Status
from pto_transport_zmq.remote.relay import Contact

_Result = TypeVar("_Result")
_CALL_S = 1.0
_STEP_S = 0.02
_ANSWER_S = 10.0
_SILENCE_S = 0.5


@dataclass(frozen=True)
class LauncherSubject:
    """A launcher under test. ``settings``: the settings of the core that it needs."""

    plugin: LauncherPlugin
    settings: Mapping[str, object]

    @classmethod
    def load(cls, name: str, settings: Mapping[str, object]) -> LauncherSubject:
        """Find the launcher by name, as users do. Raises an error if it is not healthy."""
        return cls(plugins.load_launcher(name), settings)

    def config(self) -> Config:
        """Return the settings of the core, with the settings of the subject."""
        return load_core(dict(self.settings))

    def links(self) -> Links:
        """Return the links of the remote transport in the configuration, which agents use."""
        return load_links(self.config()["remote_transport"])

    def world(self, transport: str | None = None) -> LauncherWorld:
        """Open the launcher. ``transport``: another transport for the command of the agents."""
        return LauncherWorld(self, transport)


@dataclass(frozen=True)
class Client:
    """The client of agents. It makes a new connection for each request."""

    links: Links
    keys: KeyPair

    def ask(self, agent: PlacedAgent, request: Request, timeout_s: float = _ANSWER_S) -> Reply:
        """Return the answer of an agent to its client; raise LinkError."""
        contact = Contact(self.links, agent.address, self.keys, agent.key, is_insecure=False)
        return contact.ask(request, timeout_s)

    def expect_answer(self, agent: PlacedAgent) -> None:
        """Require that an agent answers its client."""
        try:
            reply = self.ask(agent, GetStatus())
        except LinkError as error:
            expect(False, f"the agent at {agent.address} does not answer its client: {error}")
        expect(isinstance(reply, Status), f"the agent at {agent.address} answered {reply!r}")

    def expect_end(self, agent: PlacedAgent, what: str) -> None:
        """Require that an agent soon answers no more."""
        until(lambda: not self._answers(agent), f"{what}: waiting for the end of the agent")

    def _answers(self, agent: PlacedAgent) -> bool:
        try:
            self.ask(agent, GetStatus(), _SILENCE_S)
        except LinkError:
            return False
        return True


class LauncherWorld:
    """An open launcher, and the client of its agents."""

    def __init__(self, subject: LauncherSubject, transport: str | None = None) -> None:
        links = subject.links()
        self.client = Client(links, links.key_pair())
        command = AgentCommand(self.client.keys.public, transport or links.name)
        self.launcher = subject.plugin.open(command, subject.config())
        self.slowest_s = 0.0

    def place(self, count: int) -> Sequence[Placement]:
        """Place agents that need no resources."""
        placed = self._measured(lambda: self.launcher.place(count, {}))
        expect(len(placed) == count, f"place({count}) returned {len(placed)} placements")
        return placed

    def address(self, placement: Placement) -> PlacedAgent | Pending:
        """Return what the launcher reports."""
        return self._measured(lambda: self.launcher.address(placement))

    def lost(self, placement: Placement) -> str | None:
        """Return what the launcher reports."""
        return self._measured(lambda: self.launcher.lost(placement))

    def release(self, placement: Placement) -> None:
        """Release a placement."""
        self._measured(lambda: self.launcher.release(placement))

    def agents(self, placements: Sequence[Placement]) -> list[PlacedAgent]:
        """Wait until all agents listen, and return them."""
        found: dict[Placement, PlacedAgent] = {}

        def all_listen() -> bool:
            for placement in placements:
                reason = self.lost(placement)
                expect(reason is None, f"the launcher reports that {placement} is lost: {reason}")
                agent = self.address(placement)
                if isinstance(agent, PlacedAgent):
                    found[placement] = agent
                else:
                    expect(agent.reason, f"the agent {placement} is pending without a reason")
            return len(found) == len(set(placements))

        until(all_listen, "waiting for the addresses of agents")
        return [found[placement] for placement in placements]

    def reason_of_loss(self, placement: Placement) -> str:
        """Wait until the launcher reports that an agent is lost, and return the reason."""
        found: list[str] = []

        def is_lost() -> bool:
            reason = self.lost(placement)
            found.extend([] if reason is None else [reason])
            return bool(found)

        until(is_lost, f"waiting for lost({placement}) to return a reason")
        expect(found[0].strip(), f"lost({placement}) returned an empty reason")
        return found[0]

    def close(self) -> None:
        """Close the launcher."""
        self.launcher.close()

    def __enter__(self) -> LauncherWorld:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _measured(self, call: Callable[[], _Result]) -> _Result:
        begin = time.monotonic()
        result = call()
        self.slowest_s = max(self.slowest_s, time.monotonic() - begin)
        return result

    def expect_quick_calls(self) -> None:
        """Require that no call has waited."""
        slow_s = self.slowest_s
        expect(slow_s < _CALL_S, f"a call returned after {slow_s:.1f} s; the limit is 1 s")


def until(condition: Callable[[], Any], what: str) -> None:
    """Wait until ``condition()`` is true; fail after the kit's time limit."""
    limit_s = processes.LIMIT_S
    begin = time.monotonic()
    while not condition():
        expect(time.monotonic() - begin < limit_s, f"{what}: not within {limit_s:.0f} s")
        time.sleep(_STEP_S)
