"""The subcommands: those of this package, and those of plugins, listed without importing them."""

from __future__ import annotations

from importlib import import_module
from typing import cast

from pto_core.interfaces.command import Command

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
    """Return one line about each subcommand; the subcommands of this package come first."""
    from pto_core.plugins.records import commands

    listed = dict(SUMMARIES)
    for record in commands():
        for name in record.names:
            listed.setdefault(name, f"added by {record.source}")
    return listed


def load(name: str) -> Command:
    """Import the subcommand ``name``.

    Raises :class:`~pto_core.errors.UsageError` if there is no such subcommand, and
    :class:`~pto_core.errors.PluginError` if it belongs to a plugin that cannot be used.
    """
    if name in SUMMARIES:
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
