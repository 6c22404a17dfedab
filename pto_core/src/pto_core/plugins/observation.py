"""Observers: plugins that receive the events of runs and cases.

pluggy is imported only if an observer is installed. Without observers, events cost nothing.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from pto_core.errors import PluginError
from pto_core.errors.suggestion import suggestion
from pto_core.plugins.checks import load_error
from pto_core.plugins.loading import load_record
from pto_core.plugins.records import PluginRecord, duplicate_error, installed


class Observers:
    """The observers of one device or one command; notifies all of them of an event.

    ``problems`` contains one error for each observer that is unusable; the other observers still
    work. The owner of this object shows the errors. ``is_active``: whether there is an observer.
    """

    def __init__(self, plugins: Mapping[PluginRecord, Any], problems: tuple[PluginError, ...] = ()):
        self.problems = problems
        self.is_active = bool(plugins)
        self._manager = _manager(plugins) if plugins else None

    def notify(self, hook: str, **arguments: Any) -> None:
        """Call ``hook`` on every observer.

        Raises a :class:`~pto_core.errors.PluginError` if an observer raises an exception. The error
        names the observer, and the exception is its cause.
        """
        if self._manager is None:
            return
        caller = getattr(self._manager.hook, hook)
        try:
            caller(**arguments)
        except Exception as error:
            raise _hook_failed(hook, caller, error) from error


def load_observers() -> Observers:
    """Import every installed observer; add the errors of unusable observers to ``problems``."""
    found = installed("observer")
    usable: dict[PluginRecord, Any] = {}
    problems: list[PluginError] = []
    for record in found:
        duplicate = duplicate_error(record, found)
        try:
            if duplicate is not None:
                raise duplicate
            plugin = load_record(record)
            check_observer(record, plugin)
            usable[record] = plugin
        except PluginError as error:
            problems.append(error)
    return Observers(usable, tuple(problems))


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
    _manager({record: plugin})


def _is_hook(name: str, value: object) -> bool:
    if isinstance(value, ModuleType) or inspect.isclass(value) or not callable(value):
        return False
    return name.startswith("pto_") or hasattr(value, "pto_impl")


def _manager(plugins: Mapping[PluginRecord, Any]) -> Any:
    import pluggy

    from pto_core.plugins.hooks import Hooks

    manager = pluggy.PluginManager("pto")
    manager.add_hookspecs(Hooks)
    for record, plugin in plugins.items():
        try:
            manager.register(plugin, name=f"{record.name} ({record.source})")
        except pluggy.PluginValidationError as error:
            what = "has a hook with an invalid signature: " + " ".join(str(error).split())
            raise load_error(record, what) from error
    return manager


def _hook_failed(hook: str, caller: Any, error: Exception) -> PluginError:
    """Return the error for an exception in a hook; find its observer in the traceback."""
    codes = set()
    trace = error.__traceback__
    while trace is not None:
        codes.add(trace.tb_frame.f_code)
        trace = trace.tb_next
    names = [
        impl.plugin_name
        for impl in caller.get_hookimpls()
        if getattr(impl.function, "__code__", None) in codes
    ]
    who = names[0] if names else "unknown"
    return PluginError(
        f"observer {who} failed in {hook}: {type(error).__name__}: {error}",
        family="observer",
        plugin=who,
    )
