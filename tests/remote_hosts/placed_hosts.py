"""Processes of launchers and their agents, and graph functions that tell where they run."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

import psutil
from remote_hosts import is_running, task_args

from pto_core import Worker
from pto_core.worker.runs import GraphFunction


def launchers(of: psutil.Process | None = None) -> list[psutil.Process]:
    """Return the processes of launchers of this process, or of another one."""
    return [one for one in (of or psutil.Process()).children() if is_launcher(one)]


def is_launcher(process: psutil.Process) -> bool:
    """Return whether a process is the running process of a launcher."""
    try:
        return is_running(process) and "launcher_process" in " ".join(process.cmdline())
    except psutil.Error:
        return False  # it has exited meanwhile


def agents() -> list[psutil.Process]:
    """Return the agents of the only launcher."""
    (launcher,) = launchers()
    return [one for one in launcher.children() if is_running(one)]


def host_of(pid: int) -> list[psutil.Process]:
    """Return the agent that has a process, with all its processes."""
    hosts = [[agent, *agent.children(recursive=True)] for agent in agents()]
    (found,) = (host for host in hosts if pid in [process.pid for process in host])
    return found


def write_pid(orch: Any, args: Any, config: Any) -> None:
    args.tensor(0)[:] = os.getpid()


def holding(begun: Path, go: Path) -> GraphFunction:
    """Return a function that writes its process id to one file, and waits for another file."""

    def hold(orch: Any, args: Any, config: Any) -> None:
        import time

        with Path(begun).open("a") as opened:
            opened.write(f"{os.getpid()}\n")
        while not Path(go).exists():
            time.sleep(0.01)
        args.tensor(0)[:] = os.getpid()

    return hold


def pids(worker: Worker, step: Any, *children: int, retries: int = 0) -> list[int]:
    """Return the process id of each of these children."""
    out = worker.shared_array((len(children), 1), "int64")

    def graph(orch: Any, args: Any, config: Any) -> None:
        for row, child in enumerate(children):
            orch.submit_next_level(step, task_args(out[row]), worker=child, retries=retries)

    worker.run(graph)
    return [int(pid) for pid in out[:, 0]]


def kill_host(pid: int) -> None:
    """Kill the agent that has a process, with all its processes."""
    for process in host_of(pid):
        with contextlib.suppress(psutil.NoSuchProcess):  # it has exited after its parent
            process.kill()
