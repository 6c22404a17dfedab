"""Show every setting with its value and its origin."""

from __future__ import annotations

import argparse

from pto_core import log
from pto_core.cli.show import show_json, show_table
from pto_core.config import (
    EXAMPLE_VARIABLES,
    Config,
    load_core,
    load_with_plugins,
    process_environment,
)
from pto_core.errors import BackendUnavailableError, PluginError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``pto config``."""
    parser.add_argument("-p", "--backend", help="also show the settings of this backend")
    parser.add_argument("-r", "--runtime", help="also show the settings of this runtime")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(namespace: argparse.Namespace) -> int:
    """Print the settings of the core and of the chosen backend and runtime."""
    chosen = {"backend": namespace.backend, "runtime": namespace.runtime}
    argument = {**chosen, "log_level": namespace.log_level}
    try:
        config = load_with_plugins(argument, namespace.set)
    except (PluginError, BackendUnavailableError):
        # A plugin cannot be loaded. Show the core's settings anyway: the origin of the setting
        # explains where a wrong plugin name comes from.
        _show(load_core(argument, namespace.set), as_json=namespace.json)
        raise
    for warning in config.warnings:
        log.show(f"pto: warning: {warning}", "warn")
    _show(config, as_json=namespace.json)
    return 0


def _show(config: Config, *, as_json: bool) -> None:
    values = {name: process_environment().get(name) for name in EXAMPLE_VARIABLES}
    if as_json:
        settings = {s.key: {"value": s.value, "origin": s.origin} for s in config.settings()}
        show_json({"settings": settings, "warnings": config.warnings, "variables": values})
        return
    rows = [(s.key, _shown(s.value), s.origin, s.option.help) for s in config.settings()]
    show_table("settings", ("key", "value", "origin", "meaning"), rows)
    print()
    meanings = [(name, _shown(values[name]), help_) for name, help_ in EXAMPLE_VARIABLES.items()]
    show_table("variables of examples", ("variable", "value", "meaning"), meanings)


def _shown(value: object) -> str:
    return "none" if value is None else str(value)
