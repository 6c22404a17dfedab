"""The launchers of this package, as plugins of the group ``pto.launchers``."""

from __future__ import annotations

import itertools
import shlex
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from pto_core.errors import CapacityError, UsageError
from pto_core.interfaces import API_VERSION, AgentCommand, Health
from pto_transport_zmq.launchers.agent_process import AgentProcess, ProcessLauncher


class _Builtin:
    """The members that both plugins of this module share."""

    api_version = API_VERSION
    capabilities: frozenset[str] = frozenset()

    def health(self) -> Health:
        """Return a healthy state: the plugin works on every machine."""
        return Health(ok=True)


class LocalLauncher(ProcessLauncher):
    """Starts agents on this machine, on free ports of the loopback interface."""

    def __init__(self, agent: AgentCommand) -> None:
        super().__init__()
        # Without the current folder on the path, as with the command `pto`.
        python = (sys.executable, "-P", "-m", "pto_core.cli")
        self._command = (*python, *agent.arguments("tcp://127.0.0.1:0"))
        self._numbers = itertools.count(1)

    def place(self, count: int, resources: Mapping[str, float]) -> Sequence[AgentProcess]:
        """Start agents. Resources are ignored, so a program for a cluster also runs here."""
        names = (f"local {next(self._numbers)}" for _ in range(count))
        return [self.start(self._command, name) for name in names]


class Local(_Builtin):
    """The plugin of the launcher for this machine."""

    name = "local"

    def open(self, agent: AgentCommand, config: Mapping[str, Any]) -> LocalLauncher:
        """Return a launcher; it needs no settings."""
        return LocalLauncher(agent)


class CommandLauncher(ProcessLauncher):
    """Starts one agent on each host of a list, by a command such as ssh.

    ``template``: the words of the command, in which ``{host}`` and ``{command}`` are replaced.
    """

    def __init__(self, agent: AgentCommand, hosts: Sequence[str], template: Sequence[str]) -> None:
        super().__init__()
        self._agent = shlex.join(("pto", *agent.arguments("tcp://0.0.0.0:0")))
        self._template = tuple(template)
        # The host that was used last is the last entry, so a lost host is replaced by another one.
        self._hosts = list(hosts)

    def place(self, count: int, resources: Mapping[str, float]) -> Sequence[AgentProcess]:
        """Start agents on free hosts. Resources are ignored: the list says which hosts to use."""
        used = {str(one) for one in self.placed}
        free = [host for host in self._hosts if host not in used]
        if count > len(free):
            raise CapacityError(
                f"host_list has too few hosts: {count} wanted; free: {', '.join(free) or 'none'}; "
                f"in use: {', '.join(sorted(used)) or 'none'}; add hosts to it, or use fewer",
                name="host_list",
                value=count,
                limit=len(free),
            )
        return [self._start_on(host) for host in free[:count]]

    def _start_on(self, host: str) -> AgentProcess:
        values = {"{host}": host, "{command}": self._agent}
        command = []
        for word in self._template:
            for mark, value in values.items():
                word = word.replace(mark, value)
            command.append(word)
        self._hosts.remove(host)
        self._hosts.append(host)
        return self.start(command, host, host.rpartition("@")[2])


class Command(_Builtin):
    """The plugin of the launcher that starts agents by a command."""

    name = "command"

    def open(self, agent: AgentCommand, config: Mapping[str, Any]) -> CommandLauncher:
        """Return a launcher; raise UsageError if its settings are missing or invalid."""
        hosts = [host.strip() for host in (config["host_list"] or "").split(",")]
        if not all(hosts):
            raise UsageError(
                f"host_list is {config['host_list']!r}, but the launcher 'command' needs the names "
                "of hosts; set it, for example host_list=host1,host2",
                name="host_list",
                value=config["host_list"],
            )
        return CommandLauncher(agent, list(dict.fromkeys(hosts)), _words(config["host_command"]))


def _words(template: str) -> list[str]:
    try:
        words = shlex.split(template)
    except ValueError:
        words = []
    if not any("{command}" in word for word in words):
        raise UsageError(
            f"host_command is {template!r}; expected a command line in which {{command}} stands "
            'for the command of the agent, such as "ssh {host} {command}"',
            name="host_command",
            value=template,
        )
    return words


local = Local()
command = Command()
