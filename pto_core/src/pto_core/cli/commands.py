"""Which subcommands exist: ours from a table, others from metadata; listing imports none."""

from __future__ import annotations

from importlib import import_module
from typing import cast

from pto_core.interfaces.command import Command

SUMMARIES = {
    "run": "run a case and compare its outputs with the reference",
    "plugins": "list the installed plugins and whether they work here",
    "doctor": "say what this machine lacks and how to get it",
    "config": "show every setting and where its value comes from",
    "new": "write a skeleton that runs as it is",
}


def summaries() -> dict[str, str]:
    """Give one line about each subcommand, ours first."""
    from pto_core.plugins.records import commands

    listed = dict(SUMMARIES)
    for record in commands():
        for name in record.names:
            listed.setdefault(name, f"added by {record.source}")
    return listed


def load(name: str) -> Command:
    """Import the subcommand called ``name``.

    Raises :class:`~pto_core.errors.UsageError` when there is none, and
    :class:`~pto_core.errors.PluginError` when it is a plugin's that cannot be used.
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
