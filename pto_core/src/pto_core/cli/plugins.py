"""List the installed plugins, their capabilities, and whether they work on this machine."""

from __future__ import annotations

import argparse
from typing import Any

from pto_core.cli.show import show_json, show_table
from pto_core.interfaces import Health
from pto_core.plugins import Inspection, inspect_all, installation

_COLUMNS = ("family", "name", "aliases", "distribution", "capabilities", "health")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``pto plugins``."""
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(namespace: argparse.Namespace) -> int:
    """Print the list. A plugin that does not work is listed too; the command still succeeds."""
    found = inspect_all()
    if namespace.json:
        show_json([_as_json(inspection) for inspection in found])
        return 0
    problems = [_problem(inspection) for inspection in found if not inspection.health.ok]
    show_table("plugins", _COLUMNS, [_row(inspection) for inspection in found], problems)
    if not any(inspection.record.family == "backend" for inspection in found):
        fix = installation("backend", "a2a3sim")
        print(f"no backend is installed; to install the simulator, {fix}")
    return 0


def _row(found: Inspection) -> tuple[str, ...]:
    record = found.record
    return (
        record.family + (f" ({found.reach})" if found.reach else ""),
        record.name,
        ", ".join(record.aliases),
        record.source,
        ", ".join(sorted(found.capabilities)),
        _health(found.health),
    )


def _health(health: Health) -> str:
    if not health.ok:
        return "not usable"
    return f"healthy, {health.label}" if health.label else "healthy"


def _problem(found: Inspection) -> str:
    health = found.health
    return f"{found.record.family} {found.record.name}: {health.reason}. To fix it: {health.fix}"


def _as_json(found: Inspection) -> dict[str, Any]:
    record = found.record
    return {
        "family": record.family,
        "reach": found.reach,
        "name": record.name,
        "aliases": list(record.aliases),
        "distribution": record.distribution,
        "version": record.version,
        "capabilities": sorted(found.capabilities),
        "healthy": found.health.ok,
        "reason": found.health.reason,
        "fix": found.health.fix,
        "label": found.health.label,
    }
