"""Measure the start of hosts that launchers place, and the replacement of a killed host.

The floor is the start of as many bare agent processes by hand, until each has printed its address.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from benchmarks.effort import Effort
from benchmarks.figure import Figure, interleaved
from pto_core import Hosts, Worker
from pto_core.errors import PtoError
from pto_core.interfaces import AgentCommand
from pto_core.published import TaskArgs, TensorArgType
from pto_transport_zmq.link.loading import load_links

COUNTS = (1, 4)
PTO = Path(sys.executable).with_name("pto")
# The settings of each launcher. The command is a shell of this machine in the place of ssh.
SETTINGS: dict[str, dict[str, Any]] = {
    "local": {},
    "command": {
        "host_list": ",".join(f"{user}@127.0.0.1" for user in "abcd"),
        "host_command": f"sh -c {PTO.parent}/{{command}}",
    },
    "ray": {},
}
_FLOOR = "bare agent processes"


def figures(effort: Effort) -> Iterator[Figure]:
    """Measure the start of 1 and 4 hosts by each launcher, and the way back after a kill."""
    missing = {name: reason for name in SETTINGS if (reason := _missing(name))}
    for count in COUNTS:
        started = effort.size(count)
        measures = {
            name: partial(_start_s, name, started) for name in SETTINGS if name not in missing
        }
        taken = interleaved({**measures, _FLOOR: partial(_bare_s, started)}, effort.repeats)
        for name in SETTINGS:
            yield Figure(
                f"hosts, start of {count}, launcher {name}",
                "s",
                taken.get(name, []),
                peer_name=_FLOOR,
                peer=taken[_FLOOR],
                not_measured=missing.get(name, ""),
            )
    taken = interleaved({"back": _back_s, _FLOOR: partial(_bare_s, 1)}, effort.repeats)
    yield Figure(
        "hosts, from the kill of a host to a task on its replacement",
        "s",
        taken["back"],
        peer_name=_FLOOR,
        peer=taken[_FLOOR],
    )


def _missing(launcher: str) -> str:
    """Return why a launcher cannot be measured; an empty text if it can."""
    try:
        _start_s(launcher, 1)
    except PtoError as error:
        return str(error).partition(";")[0]
    return ""


def _worker(launcher: str, count: int) -> Worker:
    worker = Worker(level=4, on_worker_death="restart")
    hosts = Hosts.on(launcher, count)
    worker.add_worker(Worker(level=3, hosts=hosts, **SETTINGS[launcher]))
    return worker


def _start_s(launcher: str, count: int) -> float:
    """Return the seconds of the start of a Worker with so many hosts."""
    with _worker(launcher, count) as worker:
        begin = time.perf_counter()
        worker.init()
        return time.perf_counter() - begin


def _bare_s(count: int) -> float:
    """Return the seconds until so many agents, which start at once, have printed their address."""
    command = AgentCommand(load_links("zmq").key_pair().public, "zmq")
    arguments = [str(PTO), *command.arguments("tcp://127.0.0.1:0")]
    with ExitStack() as ending:
        begin = time.perf_counter()
        agents = [
            ending.enter_context(
                subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            )
            for _ in range(count)
        ]
        for agent in agents:
            assert agent.stdout is not None
            assert agent.stdout.readline()
        taken = time.perf_counter() - begin
        for agent in agents:
            assert agent.stdin is not None
            agent.stdin.close()
    return taken


def _back_s() -> float:
    """Kill the only host, and return the seconds until a task has run on its replacement."""
    with _worker("local", 1) as worker:
        step = worker.register(_fill)
        array = worker.shared_array(8)

        def graph(orch: Any, args: Any, config: Any) -> None:
            made = TaskArgs()
            made.add_tensor(array, TensorArgType.OUTPUT_EXISTING)
            orch.submit_next_level(step, made, retries=1)

        worker.run(graph)
        killed = [one for agent in _agents() for one in (agent, *agent.children(recursive=True))]
        begin = time.perf_counter()
        for process in killed:
            with suppress(psutil.NoSuchProcess):  # it ended with those before it
                process.kill()
        worker.run(graph)
        taken = time.perf_counter() - begin
        assert worker.statistics()["restarts"] == 1
    return taken


def _agents() -> list[psutil.Process]:
    below = psutil.Process().children()
    launchers = [one for one in below if "launcher_process" in " ".join(one.cmdline())]
    return [agent for one in launchers for agent in one.children()]


def _fill(orch: Any, args: Any, config: Any) -> None:
    args.tensor(0)[:] = 1
