"""Check every installed plugin, for listings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pto_core.errors import PluginError
from pto_core.interfaces import Health
from pto_core.plugins.advice import reinstall
from pto_core.plugins.checks import health_of, reach_of
from pto_core.plugins.loading import load_record
from pto_core.plugins.native import library_error
from pto_core.plugins.observation import check_observer
from pto_core.plugins.records import FAMILIES, PluginRecord, duplicate_error, installed


@dataclass(frozen=True)
class Inspection:
    """A plugin, its capabilities, and whether it is usable on this machine.

    ``reach``: of a transport, whether it reaches children on this host ("local") or on others
    ("remote"); otherwise None.
    """

    record: PluginRecord
    capabilities: frozenset[str]
    health: Health
    reach: str | None = None


def inspect_all() -> list[Inspection]:
    """Import and check every installed plugin. Defects of plugins are results, not exceptions."""
    found: list[Inspection] = []
    for family in FAMILIES:
        family_records = installed(family)
        found.extend(inspect(record, family_records) for record in family_records)
    return found


def inspect(record: PluginRecord, others: Sequence[PluginRecord] = ()) -> Inspection:
    """Import and check one plugin; ``others``: the family, to detect duplicate names."""
    nothing: frozenset[str] = frozenset()
    problem: PluginError | None = duplicate_error(record, others)
    if problem is not None:
        return Inspection(
            record, nothing, Health(False, problem.message, "uninstall one of the plugins")
        )
    try:
        plugin = load_record(record)
        if record.family == "observer":
            check_observer(record, plugin)
    except PluginError as error:
        health = Health(False, error.message, reinstall(record.distribution))
        return Inspection(record, nothing, health)
    capabilities = frozenset(getattr(plugin, "capabilities", ()))
    reach = reach_of(plugin) if record.family == "transport" else None
    return Inspection(record, capabilities, _health(record, plugin), reach)


def _health(record: PluginRecord, plugin: Any) -> Health:
    if record.family in ("command", "observer"):
        return Health(True)
    health = health_of(plugin)
    if health.ok and hasattr(plugin, "library"):
        problem = library_error(record, plugin.library())
        if problem is not None:
            return Health(False, problem.message, reinstall(record.distribution))
    return health
