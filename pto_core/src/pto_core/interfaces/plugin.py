"""Definitions that all plugin families share, and the interface of commands."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

API_VERSION = 0
"""The version of the Python plugin interfaces; a plugin states it as ``api_version``."""

ABI_VERSION = 0
"""The version of the native ABI, ``PTO_ABI_VERSION`` in ``pto/abi/version.h``."""


def abi_include_dir() -> Path:
    """Return the folder that contains ``pto/abi/*.h``, for code that uses the native ABI."""
    package = Path(__file__).parents[1].resolve()
    installed = package / "include"
    return installed if installed.is_dir() else package.parents[1] / "include"


@dataclass(frozen=True)
class Health:
    """The health of a plugin: whether it can work on this machine.

    ``reason`` is one sentence that explains a failure; ``fix`` is the command or instruction that
    fixes it. Both are empty if ``ok``. ``label`` names what a plugin uses in tests in the place of
    hardware, such as "fake device"; otherwise it is empty.
    """

    ok: bool
    reason: str = ""
    fix: str = ""
    label: str = ""


@runtime_checkable
class Plugin(Protocol):
    """The members that all plugins have, except commands and observers.

    A plugin is stateless: other objects do the work.
    """

    @property
    def name(self) -> str:
        """The name by which users select the plugin; equal to the name of its first entry point."""

    @property
    def api_version(self) -> int:
        """The ``API_VERSION`` that the plugin was written for."""

    @property
    def capabilities(self) -> frozenset[str]:
        """The capabilities of the plugin; its family defines their names."""

    def health(self) -> Health:
        """Return whether the plugin is usable on this machine, within 1 s. Never raises."""


@dataclass(frozen=True)
class Option:
    """A setting that a plugin adds to the configuration.

    ``key``: the full dotted name (``"sim.seed"``); a key without a dot belongs to the core.
    ``parse``: converts a text to a value, or raises ``ValueError`` with the expected form; see
    :mod:`pto_core.interfaces.parse`. ``environment``: the variable that sets it; None means
    ``PTO_`` and the key in capitals (``PTO_SIM_SEED``). ``native``: the key of the value, as text,
    in the options of the plugin's native library; None means that the library does not receive it.
    ``is_of_host``: the value chooses a program or folder of the host. A client of an agent needs a
    right to set it.
    """

    key: str
    default: Any
    parse: Callable[[str], Any]
    help: str
    environment: str | None = None
    native: str | None = None
    is_of_host: bool = False

    @property
    def variable(self) -> str:
        """The name of the environment variable that sets this option."""
        return self.environment or "PTO_" + self.key.upper().replace(".", "_")


RESERVED_COMMANDS = (
    "run",
    "plugins",
    "doctor",
    "config",
)
"""The names of the core's own commands, which a plugin cannot use."""


class Command(Protocol):
    """A module or an object that implements a command; imported when the command is invoked.

    A complete command, the module ``pto_hello``::

        '''Say hello.'''

        import argparse

        def add_arguments(parser: argparse.ArgumentParser) -> None:
            parser.add_argument("name")

        def run(namespace: argparse.Namespace) -> int:
            print(f"hello {namespace.name}")
            return 0

    with ``[project.entry-points."pto.commands"] hello = "pto_hello"``; ``pto hello Ann`` imports
    it.
    """

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare options and arguments; ``-v``, ``--log-level`` and ``--set`` exist already.

        A command may declare one of these again; its declaration then replaces the common one.
        """

    def run(self, namespace: argparse.Namespace) -> int:
        """Run the command and return its exit code; a raised PtoError supplies the code instead."""
