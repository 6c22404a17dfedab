"""The subcommands: those of this package, and those of plugins, listed without importing them."""

from __future__ import annotations

from importlib import import_module
from typing import cast

from pto_core.interfaces.command import RESERVED_COMMANDS, Command

SUMMARIES = {
    "run": "run a case and compare its outputs with the reference",
    "graph": "write the graph of a case, with the reason of each edge",
    "why": "explain why one task of a case waits for another",
    "check": "find the tasks of a case that race",
    "plugins": "list the installed plugins and whether they work on this machine",
    "doctor": "show what this machine lacks and how to install it",
    "config": "show every setting with its value and origin",
    "keys": "make keys for Workers on other hosts",
    "agent": "serve Workers of other hosts on this host",
    "trace": "show where the time of a traced run went",
    "new": "write a skeleton that runs without changes",
}


def summaries() -> dict[str, str]:
    """Return one line about each subcommand; those of other projects' plugins come last.

    The line of a subcommand whose plugin is not installed names the distribution.
    """
    from pto_core.plugins import commands, distribution_of

    sources = {name: record.source for record in commands() for name in record.names}
    listed = {}
    for name, summary in SUMMARIES.items():
        is_missing = name not in RESERVED_COMMANDS and name not in sources
        listed[name] = summary + (f" (needs {distribution_of('command', name)})" * is_missing)
    return listed | {
        name: f"added by {source}" for name, source in sources.items() if name not in SUMMARIES
    }


def load(name: str) -> Command:
    """Import the subcommand ``name``.

    Raises :class:`~pto_core.errors.UsageError` if there is no such subcommand, and
    :class:`~pto_core.errors.PluginError` if it belongs to a plugin that cannot be used.
    """
    if name in RESERVED_COMMANDS:
        return cast(Command, import_module(f"pto_core.cli.{name}"))
    from pto_core.errors import UsageError
    from pto_core.errors.suggestion import suggestion
    from pto_core.plugins import load_command

    known = summaries()
    if name not in known:
        raise UsageError(
            f"no command {name!r}{suggestion(name, known)}; commands: {', '.join(known)}",
            name="command",
            value=name,
        )
    return load_command(name)
