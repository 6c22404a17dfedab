"""The command interface: a subcommand of ``pto``.

A complete command, the module ``pto_hello``::

    '''Say hello.'''

    import argparse

    def add_arguments(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("name")

    def run(namespace: argparse.Namespace) -> int:
        print(f"hello {namespace.name}")
        return 0

with ``[project.entry-points."pto.commands"] hello = "pto_hello"``; ``pto hello Ann`` imports it.
"""

from __future__ import annotations

import argparse
from typing import Protocol

RESERVED_COMMANDS = (
    "run",
    "plugins",
    "doctor",
    "config",
)
"""The names of the core's own commands, which a plugin cannot use."""


class Command(Protocol):
    """A module or an object that implements a command; imported when the command is invoked."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare options and arguments; ``-v``, ``--log-level`` and ``--set`` exist already.

        A command may declare one of these again; its declaration then replaces the common one.
        """

    def run(self, namespace: argparse.Namespace) -> int:
        """Run the command and return its exit code; a raised PtoError supplies the code instead."""
