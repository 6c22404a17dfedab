"""The one pluggy ``PluginManager`` of this process, which has every plugin that is in use.

::

    from pto_core import plugins

    manager = plugins.manager()
    manager.list_name_plugin()  # [("backend:a2a3sim", ...), ("observer:runs", ...)]
    manager.set_blocked("observer:runs")  # is not loaded, and gets no event
    manager.register(MyObserver())  # gets the events from now on
    manager.register(MyBackend(), "backend:a2a3sim")  # replaces the installed one

A plugin has the name ``FAMILY:NAME``. pluggy is imported with the first call of :func:`manager`, or
when an observer is installed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pto_core.errors import PluginUnavailableError
from pto_core.plugins.records import PluginRecord


class Registered:
    """The plugins in use.

    ``loaded``: those that the core has loaded, by name. ``manager``: None until it is needed.
    ``hooks``: the names of the hooks that an observer has; a run without them calls nothing.
    """

    def __init__(self) -> None:
        self.loaded: dict[str, Any] = {}
        self.manager: Any = None
        self.hooks: frozenset[str] = frozenset()


registered = Registered()


def manager() -> Any:
    """Return the manager; the first call creates it, with all plugins that are loaded."""
    if registered.manager is None:
        registered.manager = new_manager()
        for name, plugin in registered.loaded.items():
            if not registered.manager.is_registered(plugin):
                registered.manager.register(plugin, name)
    return registered.manager


def new_manager() -> Any:
    """Return an empty manager that knows the hooks. It looks for hooks by their prefix only."""
    import pluggy

    from pto_core.plugins.hooks import Hooks

    class Manager(pluggy.PluginManager):
        def parse_hookimpl_opts(self, plugin: object, name: str) -> Any:
            is_hook = name.startswith("pto_")
            return super().parse_hookimpl_opts(plugin, name) if is_hook else None

        def register(self, plugin: object, name: str | None = None) -> str | None:
            made = super().register(plugin, name)
            self._note_hooks()
            return made

        def unregister(self, plugin: Any = None, name: str | None = None) -> Any:
            removed = super().unregister(plugin, name)
            self._note_hooks()
            return removed

        def _note_hooks(self) -> None:
            if self is registered.manager:
                hooks = [name for name in vars(Hooks) if name.startswith("pto_")]
                used = (name for name in hooks if getattr(self.hook, name).get_hookimpls())
                registered.hooks = frozenset(used)

    made = Manager("pto")
    made.add_hookspecs(Hooks)
    return made


def replacement(record: PluginRecord) -> Any:
    """Return the object that the program registered in place of a plugin, or None.

    Raises PluginUnavailableError if the program has blocked the plugin.
    """
    name = _name(record)
    if registered.manager is None:
        return None
    if registered.manager.is_blocked(name):
        raise PluginUnavailableError(
            f"the {record.family} {record.name!r} is blocked in the plugin manager of this "
            f"program; remove set_blocked({name!r})",
            family=record.family,
            plugin=record.name,
        )
    found = registered.manager.get_plugin(name)
    return None if found is registered.loaded.get(name) else found


def add_loaded(record: PluginRecord, plugin: Any) -> None:
    """Register a plugin that was loaded, in place of one of the same name."""
    name = _name(record)
    registered.loaded[name] = plugin
    if registered.manager is not None and not registered.manager.is_registered(plugin):
        if registered.manager.has_plugin(name):
            registered.manager.unregister(name=name)
        registered.manager.register(plugin, name)


def remove_others(family: str, records: Sequence[PluginRecord]) -> None:
    """Unregister the loaded plugins of a family that are not installed any more."""
    kept = set(map(_name, records))
    for name in [name for name in registered.loaded if name.startswith(f"{family}:")]:
        if name not in kept:
            plugin = registered.loaded.pop(name)
            if registered.manager is not None and registered.manager.is_registered(plugin):
                registered.manager.unregister(plugin)


def is_blocked(record: PluginRecord) -> bool:
    """Return whether the program has blocked a plugin."""
    return registered.manager is not None and bool(registered.manager.is_blocked(_name(record)))


def _name(record: PluginRecord) -> str:
    return f"{record.family}:{record.name}"
