"""Observers: plugins that receive the events of runs, cases and Workers.

pluggy is imported only if an observer is installed. Without observers, events cost nothing.
"""

from __future__ import annotations

import inspect
from types import ModuleType
from typing import Any

from pto_core import log
from pto_core.errors import PluginError
from pto_core.errors.suggestion import suggestion
from pto_core.plugins.checks import load_error
from pto_core.plugins.loading import load_record
from pto_core.plugins.manager import (
    add_loaded,
    is_blocked,
    manager,
    new_manager,
    registered,
    remove_others,
    replacement,
)
from pto_core.plugins.records import PluginRecord, duplicate_error, installed


class Observers:
    """Notifies the observers of this process of events.

    ``problems`` contains one error for each observer that is unusable; the other observers still
    work. The owner of this object shows the errors.
    """

    def __init__(self, problems: tuple[PluginError, ...] = ()) -> None:
        self.problems = problems

    def notify(self, hook: str, **arguments: Any) -> None:
        """Call ``hook`` of every observer, in the order of their registration.

        An exception of an observer is logged as a warning, which names the observer.
        """
        if hook not in registered.hooks:
            return
        for implementation in getattr(manager().hook, hook).get_hookimpls():
            names = implementation.argnames
            try:
                implementation.function(*(arguments[name] for name in names))
            except Exception as error:  # noqa: BLE001 - an observer may raise any exception
                log.get(__name__).warning(
                    "observer failed",
                    observer=implementation.plugin_name,
                    hook=hook,
                    reason=f"{type(error).__name__}: {error}",
                )

    def log_problems(self) -> Observers:
        """Log each problem as a warning; return this object."""
        for problem in self.problems:
            log.get(__name__).warning("observer not used", reason=str(problem))
        return self


def load_observers() -> Observers:
    """Import and register every installed observer; collect the errors of unusable observers."""
    found = installed("observer")
    remove_others("observer", found)
    problems: list[PluginError] = []
    for record in found:
        if is_blocked(record):
            continue
        duplicate = duplicate_error(record, found)
        try:
            if duplicate is not None:
                raise duplicate
            manager()
            if replacement(record) is None:
                load_observer(record)
        except PluginError as error:
            problems.append(error)
    return Observers(tuple(problems))


def load_observer(record: PluginRecord) -> Any:
    """Import, check and register an observer."""
    plugin = load_record(record)
    check_observer(record, plugin)
    add_loaded(record, plugin)
    return plugin


def check_observer(record: PluginRecord, plugin: Any) -> None:
    """Raise unless each hook of ``plugin`` is known, has the marker, and has a valid signature.

    pluggy silently ignores a hook with a misspelt name or without the marker ``@hookimpl``.
    """
    from pto_core.plugins.hooks import Hooks

    known = [name for name in vars(Hooks) if name.startswith("pto_")]
    implemented = [name for name in dir(plugin) if _is_hook(name, getattr(plugin, name, None))]
    for name in implemented:
        if name not in known:
            hint = suggestion(name, known) or f"; hooks: {', '.join(known)}"
            raise load_error(record, f"has a hook {name!r} that does not exist{hint}")
        if not hasattr(getattr(plugin, name), "pto_impl"):
            raise load_error(record, f"does not mark its hook {name!r} with @hookimpl")
    if not implemented:
        raise load_error(record, f"implements no hook; hooks: {', '.join(known)}")
    _check_signatures(record, plugin)


def _is_hook(name: str, value: object) -> bool:
    if isinstance(value, ModuleType) or inspect.isclass(value) or not callable(value):
        return False
    return name.startswith("pto_") or hasattr(value, "pto_impl")


def _check_signatures(record: PluginRecord, plugin: Any) -> None:
    import pluggy

    try:
        new_manager().register(plugin)
    except pluggy.PluginValidationError as error:
        what = "has a hook with an invalid signature: " + " ".join(str(error).split())
        raise load_error(record, what) from error
