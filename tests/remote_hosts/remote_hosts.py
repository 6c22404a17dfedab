"""An agent in its own process, and graph functions for Workers on its host."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from pto_core import TaskArgs, TensorArgType, Worker
from pto_transport_zmq.remote.keys import public_key

START_S = 60.0


@dataclass(frozen=True)
class Agent:
    """A running agent. ``link``: the link that it uses; ``keys``: the folder of its key set.

    ``process`` is the agent, or the program that started it in namespaces.
    """

    address: str
    link: str
    keys: Path | None
    process: subprocess.Popen[str]
    log: Path

    def worker(self, **settings: Any) -> Worker:
        """Return a Worker of level 3 on the agent's host."""
        chosen = {
            "level": 3,
            "num_sub_workers": 2,
            "remote_transport": self.link,
            "keys": self.keys,
            **settings,
        }
        return Worker(host=self.address, **chosen)

    def processes(self) -> list[psutil.Process]:
        """Return the processes of all sessions: gateways, Workers and their children."""
        server = self.server()
        return [one for one in self.main().children(recursive=True) if one != server]

    def main(self) -> psutil.Process:
        """Return the process that forks gateways."""
        return main_of(self.process)

    def server(self) -> psutil.Process:
        """Return the process that serves clients, the agent's first child."""
        return min(self.main().children(), key=lambda one: one.create_time())

    def await_no_session(self) -> None:
        """Wait until no process of any session is left."""
        wait_until(lambda: not [one for one in self.processes() if is_running(one)])


@contextmanager
def running_agent(
    folder: Path,
    link: str,
    keys: Path | None,
    *options: str,
    within: Sequence[str] = (),
    may_die: bool = False,
) -> Iterator[Agent]:
    """Start an agent on a free port, and stop it at the end. ``within``: its command's prefix."""
    log = folder / "agent.log"
    if keys is not None:
        options = (*options, "--keys", str(keys))
    python = [*within, sys.executable]
    command = [*python, "-m", "pto_core.cli", "agent", "--set", f"remote_transport={link}", "serve"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONUNBUFFERED": "1"}
    with log.open("w") as opened:
        process = subprocess.Popen(
            [*command, "--bind", "tcp://127.0.0.1:0", *options],
            stdout=opened,
            stderr=subprocess.STDOUT,
            env=environment,
            cwd=folder,
            text=True,
        )
    try:
        pattern = re.compile(r"serving at (tcp://\S+)")
        wait_until(lambda: pattern.search(log.read_text()) or process.poll() is not None)
        found = pattern.search(log.read_text())
        assert found, log.read_text()
        yield Agent(found[1], link, keys, process, log)
    finally:
        if process.poll() is None:
            main_of(process).terminate()
        try:
            process.wait(START_S)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        assert may_die or process.returncode == 0, log.read_text()


def allow_list(folder: Path, keys: Path, **rights: Any) -> Path:
    """Write the rights of the client of a key set, with the name ann; return the file."""
    file = folder / "clients.toml"
    key = public_key(keys, "client", "zmq")
    lines = [f"{name} = {json.dumps(value)}" for name, value in rights.items()]
    file.write_text("\n".join(["[[client]]", 'name = "ann"', f'key = "{key}"', *lines]) + "\n")
    return file


def main_of(process: subprocess.Popen[str]) -> psutil.Process:
    """Return the agent: the process itself, or its child if it is ``nsenter``."""
    found = psutil.Process(process.pid)
    return found.children()[0] if found.name() == "nsenter" else found


def wait_until(is_true: Callable[[], object], timeout_s: float = START_S) -> None:
    """Wait until a condition holds; fail after the limit."""
    until = time.monotonic() + timeout_s
    while not is_true():
        assert time.monotonic() < until, "the condition did not become true"
        time.sleep(0.02)


def is_running(process: psutil.Process) -> bool:
    """Return whether a process exists and is no zombie."""
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def on_sub(leaf: Any) -> Callable[..., None]:
    """Return a graph function that passes its tensors to a SUB task, which writes the last one."""

    def graph(orch: Any, args: Any, config: Any) -> None:
        inner = TaskArgs()
        for index in range(args.tensor_count):
            is_last = index == args.tensor_count - 1
            tag = TensorArgType.OUTPUT_EXISTING if is_last else TensorArgType.INPUT
            inner.add_tensor(args.tensor(index), tag)
        orch.submit_sub(leaf, inner)

    return graph


def task_args(*tensors: Any, out: TensorArgType = TensorArgType.OUTPUT_EXISTING) -> TaskArgs:
    """Return task arguments; the last tensor has the tag ``out``, the others are inputs."""
    made = TaskArgs()
    for tensor in tensors[:-1]:
        made.add_tensor(tensor, TensorArgType.INPUT)
    made.add_tensor(tensors[-1], out)
    return made


def write_line(log: Path, text: str) -> None:
    """Append a line in one system call."""
    with log.open("a") as opened:
        opened.write(text)


def double(args: Any) -> None:
    args.tensor(1)[:] = args.tensor(0) * 2


def add(args: Any) -> None:
    args.tensor(2)[:] = args.tensor(0) + args.tensor(1)


def counted(worker: Worker, count: int = 1024) -> np.ndarray[Any, Any]:
    """Return a shared array with the numbers 0, 1, 2 and so on."""
    made = worker.shared_array((count,))
    made[:] = np.arange(count)
    return made
