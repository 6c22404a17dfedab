"""Hosts with their own network, mount, IPC and PID namespaces, each joined to this one by a veth.

A process keeps the namespaces of a host alive. When it ends, the kernel ends all processes in them
and removes the veth.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
from remote_hosts import Agent, running_agent, wait_until

KINDS = ("net", "mount", "ipc", "pid")
UNSHARE = ["unshare", *(f"--{kind}" for kind in KINDS), "--fork", "--kill-child", "--mount-proc"]


def missing_permission() -> str:
    """Return why this machine cannot create such hosts; empty if it can."""
    veth = f"pto{os.getpid()}p"
    for command in (
        [*UNSHARE, "true"],
        ["ip", "link", "add", veth, "type", "veth"],
        ["ip", "link", "delete", veth],
    ):
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        except OSError as error:
            return f"{command[0]}: {error.strerror}"
        if done.returncode:
            return done.stderr.strip()
    return ""


@dataclass(frozen=True)
class NamespaceHost:
    """A host. ``holder``: the first process of its PID namespace."""

    holder: int
    address: str

    def command(self, *arguments: str) -> list[str]:
        """Return a command that runs on the host."""
        return ["nsenter", f"--target={self.holder}", *(f"--{kind}" for kind in KINDS), *arguments]

    def set_link(self, *, is_up: bool) -> None:
        """Connect or disconnect the host."""
        state = "up" if is_up else "down"
        subprocess.run(self.command("ip", "link", "set", "wire", state), check=True)


@contextmanager
def running_host(number: int) -> Iterator[NamespaceHost]:
    """Create a host with its veth, and remove both at the end. ``number``: from 0 to 3."""
    near = f"pto{os.getpid()}n{number}"
    process = subprocess.Popen([*UNSHARE, "sleep", "infinity"])
    try:
        unshare = psutil.Process(process.pid)
        wait_until(lambda: unshare.children() and unshare.children()[0].name() == "sleep")
        holder = unshare.children()[0].pid
        # Addresses of the range for benchmarks (RFC 2544); each process of the tests has its own.
        own = os.getpid()
        network = f"198.{18 + (own >> 14 & 1)}.{own >> 6 & 255}"
        last = (own & 15) * 16 + number * 4
        host = NamespaceHost(holder, f"{network}.{last + 2}")
        for command in (
            [
                "ip",
                "link",
                "add",
                near,
                "type",
                "veth",
                "peer",
                "name",
                "wire",
                "netns",
                f"{holder}",
            ],
            ["ip", "address", "add", f"{network}.{last + 1}/30", "dev", near],
            ["ip", "link", "set", near, "up"],
            host.command("ip", "address", "add", f"{host.address}/30", "dev", "wire"),
            host.command("ip", "link", "set", "wire", "up"),
            host.command("ip", "link", "set", "lo", "up"),
        ):
            subprocess.run(command, check=True)
        yield host
    finally:
        process.kill()
        process.wait()
        wait_until(lambda: not Path(f"/sys/class/net/{near}").exists())


@contextmanager
def running_host_agent(host: NamespaceHost, folder: Path, keys: Path) -> Iterator[Agent]:
    """Run an agent on a host."""
    folder.mkdir()
    bind = ("--bind", f"tcp://{host.address}:0")
    with running_agent(folder, "zmq", keys, *bind, within=host.command()) as agent:
        yield agent
