"""The connection to a Ray cluster, and the thread that uses it.

A call of Ray can wait for as long as the cluster does not answer, so one thread makes all of them
but the first. The launcher sends it orders, and reads the attributes of :class:`RayAgent`, which
only the thread sets. Ray ends this process if the cluster has not answered for a minute.
"""

from __future__ import annotations

import queue
import socket
import threading
import time
from collections.abc import Sequence
from typing import Any

import ray
from ray.exceptions import ActorUnavailableError, RayError

from pto_core.errors import LinkError, UsageError
from pto_core.interfaces import AgentCommand, PlacedAgent
from pto_launcher_ray.actor import AgentActor, Listening
from pto_launcher_ray.resources import Node, Resources, actor_options, amounts
from pto_transport_zmq.link.interface import split_address

_STEP_S = 0.05
_NODES_S = 1.0  # how often the nodes are asked for
_ANSWER_S = 5.0
_SILENCE_S = 10.0
_END_S = 5.0  # how long close() waits for the ends of actors


class RayAgent:
    """The placement of one agent. ``str()`` names its node once the agent listens."""

    def __init__(self, number: int, resources: Resources) -> None:
        self.resources = resources
        self.found: Listening | None = None
        self.lost: str | None = None
        self._number = number
        self._actor: Any = None
        self._refs: list[Any] = []  # the results of `listening` and of `end_reason`

    def __str__(self) -> str:
        if self.found is None:
            return f"ray {self._number}"
        return f"{self.found.host} (ray {self._number}, node {self.found.node[:8]})"

    @property
    def agent(self) -> PlacedAgent | None:
        """The address and key of the agent; None before it listens."""
        return None if self.found is None else self.found.agent

    def begin(self, command: AgentCommand) -> None:
        """Make the actor, on a node without one if possible."""
        options = actor_options(self.resources)
        try:
            made = ray.remote(AgentActor).options(scheduling_strategy="SPREAD", **options)
            self._actor = made.remote(command)
        except ValueError as error:
            reason = " ".join(map(str, error.args))
            self.lost = f"Ray refuses the resources {amounts(self.resources)}: {reason}"
            return
        self._call()

    def check(self) -> None:
        """Receive what the actor has returned. Does not wait."""
        if self.lost is not None:
            return
        listening, end_reason = self._refs
        try:
            if self.found is None and _is_ready(listening):
                self.found = ray.get(listening)
            if _is_ready(end_reason):
                self.lost = ray.get(end_reason)
        except ActorUnavailableError:  # the connection to the actor broke; it may still run
            self._call()
        except RayError as error:
            self.lost = " ".join(str(error).split())

    def _call(self) -> None:
        self._refs = [self._actor.listening.remote(), self._actor.end_reason.remote()]

    def kill(self) -> list[Any]:
        """Kill the actor; return the object that becomes ready when it has ended."""
        if self._actor is None:
            return []
        ray.kill(self._actor)
        ends, self._actor, self._refs = self._refs[1:], None, []
        return ends


def _is_ready(ref: Any) -> bool:
    ready, _ = ray.wait([ref], timeout=0)
    return bool(ready)


class Cluster:
    """A Ray cluster. ``address``: as for ``ray.init``; None means Ray's own default.

    Raises UsageError if there is no address, and LinkError if the cluster does not answer.
    """

    def __init__(self, address: str | None, command: AgentCommand) -> None:
        _connect(address or "auto")
        self._command = command
        self._orders: queue.SimpleQueue[tuple[str, RayAgent | None]] = queue.SimpleQueue()
        self._agents: list[RayAgent] = []
        self._answered_s = 0.0
        self.nodes: Sequence[Node] = ()
        self.free: Resources = {}
        self.failure: str | None = None  # why the connection has ended
        self._ask_nodes()
        self._thread = threading.Thread(target=self._run, name="pto-launcher-ray", daemon=True)
        self._thread.start()

    @property
    def problem(self) -> str | None:
        """Why no agent can start now; None if the cluster answers."""
        silence_s = time.monotonic() - self._answered_s
        if self.failure is None and silence_s > _SILENCE_S:
            return f"the Ray cluster has not answered for {silence_s:.0f} s"
        return self.failure

    def place(self, agent: RayAgent) -> None:
        """Begin to start an agent."""
        self._orders.put(("place", agent))

    def release(self, agent: RayAgent) -> None:
        """Begin to end an agent."""
        self._orders.put(("release", agent))

    def close(self) -> None:
        """Kill all actors, wait until they have ended, and disconnect."""
        self._orders.put(("close", None))
        self._thread.join(2 * _END_S)

    def _run(self) -> None:
        try:
            while self._obey():
                for agent in self._agents:
                    agent.check()
                if time.monotonic() > self._answered_s + _NODES_S:
                    self._ask_nodes()
        except Exception as error:  # noqa: BLE001 - Ray documents no errors of its connection
            self.failure = f"the connection to the Ray cluster has failed: {error}"
        finally:
            ray.shutdown()

    def _obey(self) -> bool:
        """Carry out the next order, or wait for a short time. Return False after the last order."""
        try:
            order, agent = self._orders.get(timeout=_STEP_S)
        except queue.Empty:
            return True
        if agent is None:
            ends = [end for one in self._agents for end in one.kill()]
            if ends:
                ray.wait(ends, num_returns=len(ends), timeout=_END_S)
            self._agents.clear()
            return False
        if order == "place":
            agent.begin(self._command)
            self._agents.append(agent)
        else:
            agent.kill()
            self._agents.remove(agent)
        return True

    def _ask_nodes(self) -> None:
        self.nodes = tuple(
            Node(one["NodeID"], one["NodeManagerAddress"], one["Resources"])
            for one in ray.nodes()
            if one["Alive"]
        )
        self.free = ray.available_resources()
        self._answered_s = time.monotonic()


def _connect(address: str) -> None:
    if ray.is_initialized():
        raise UsageError(
            "this process has a connection to a Ray cluster already; open the launcher in a "
            "process without one, or call ray.shutdown() before"
        )
    if address == "local":
        raise UsageError(
            "the address of the Ray cluster is 'local', for which Ray would start a cluster; "
            "state the address of a cluster that runs",
            name="ray_address",
            value=address,
        )
    try:
        if address != "auto":
            # Ray itself would wait for minutes.
            socket.create_connection(_host_and_port(address), _ANSWER_S).close()
    except OSError as error:
        raise LinkError(
            f"no Ray cluster answers at {address}: {error}; check ray_address (or RAY_ADDRESS), "
            "and that the cluster runs",
            address=address,
        ) from error
    try:
        ray.init(address, log_to_driver=False, configure_logging=False)
    except OSError as error:
        if address == "auto":
            raise UsageError(
                "no Ray cluster was found; set ray_address (or RAY_ADDRESS) to HOST:PORT of a "
                "cluster, or start one on this machine: ray start --head",
                name="ray_address",
            ) from error
        raise LinkError(
            f"the server at {address} does not accept this program: {error}; check that it is a "
            "Ray cluster with the same version of Ray, and if it requires a token, that this "
            "program has RAY_AUTH_MODE=token and the token of the cluster",
            address=address,
        ) from error


def _host_and_port(address: str) -> tuple[str, int]:
    try:
        return split_address(f"tcp://{address}")
    except UsageError:
        raise UsageError(
            f"{address!r} is not the address of a Ray cluster; expected HOST:PORT, such as "
            "10.0.0.1:6379",
            name="ray_address",
            value=address,
            expected="HOST:PORT",
        ) from None
