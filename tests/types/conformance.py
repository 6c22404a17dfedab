"""Statements that a type checker accepts only if each part conforms to its interface.

``.ci/types`` checks this file. It is never executed.
"""

from __future__ import annotations

import pto_backend_a2a3
import pto_backend_sim
import pto_core
import pto_launcher_ray
import pto_runtime_hbg
import pto_runtime_pto2
import pto_transport_shm
import pto_transport_zmq
from pto_core.interfaces import (
    Backend,
    LauncherPlugin,
    NativeTransport,
    Orchestrator,
    Policy,
    Runtime,
    SchedulerPlugin,
)
from pto_core.worker import placement, runs
from pto_core.worker.remote_transport import RemoteTransport
from pto_devkit.engine import Configuration, Engine, NativeEngine, ReferenceEngine
from pto_transport_zmq.launchers import builtin as builtin_launchers
from pto_transport_zmq.link.interface import Link, Links, Listener


def orchestrator(native: pto_core.Orchestrator) -> Orchestrator:
    """Require that the object for graph functions conforms."""
    return native


def graph(orch: Orchestrator, args: object, config: object) -> None:
    """A graph function that is written against the interface."""


def engines(configuration: Configuration, policy: Policy) -> list[Engine]:
    """Require that both engines conform."""
    return [
        ReferenceEngine(configuration, policy=policy),
        NativeEngine(configuration, policy=policy),
    ]


def ends(
    listener: pto_transport_zmq.link.ends.ZmqListener, link: pto_transport_zmq.link.ends.ZmqLink
) -> tuple[Listener, Link]:
    """Require that both ends of a link conform."""
    return listener, link


graph_function: runs.GraphFunction = graph
backends: list[Backend] = [pto_backend_a2a3.plugin, pto_backend_sim.plugin]
runtimes: list[Runtime] = [
    pto_runtime_hbg.host_build_graph,
    pto_runtime_hbg.aicpu_build_graph,
    pto_runtime_pto2.plugin,
]
transports: list[NativeTransport] = [pto_transport_shm.plugin]
links: list[Links] = [pto_transport_zmq.plugin.links]
remote_transports: list[RemoteTransport] = [pto_transport_zmq.plugin]
schedulers: list[SchedulerPlugin] = [placement.least_loaded_plugin, placement.near_inputs]
launchers: list[LauncherPlugin] = [
    builtin_launchers.local,
    builtin_launchers.command,
    pto_launcher_ray.plugin,
]
