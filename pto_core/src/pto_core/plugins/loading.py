"""Import and check one plugin before its first use."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any, cast

from pto_core.errors import (
    BackendUnavailableError,
    PluginError,
    PluginLoadError,
    PluginUnavailableError,
    UsageError,
)
from pto_core.interfaces import (
    Backend,
    Command,
    LauncherPlugin,
    NativeTransport,
    Option,
    PythonTransport,
    Runtime,
    SchedulerPlugin,
)
from pto_core.plugins.checks import check_plugin, health_of, reach_of
from pto_core.plugins.manager import add_loaded, replacement
from pto_core.plugins.native import check_library
from pto_core.plugins.records import PluginRecord, find, installed


def load_backend(name: str) -> Backend:
    """Return the backend called ``name``. The backend is usable on this machine.

    Imports only that plugin. Raises :class:`~pto_core.errors.BackendUnavailableError` if the
    backend is not usable on this machine; no other backend is used in its place. Raises another
    :class:`~pto_core.errors.PluginError` for a defect of the plugin.
    """
    record = find("backend", name)
    backend = cast(Backend, load_record(record))
    health = health_of(backend)
    if not health.ok:
        raise BackendUnavailableError(
            f"backend {record.name!r} ({record.source}) cannot be used on this machine: "
            f"{health.reason}; {health.fix}",
            backend=record.name,
            reason=health.reason,
            fix=health.fix,
        )
    check_library(record, backend.library())
    return backend


def load_runtime(name: str) -> Runtime:
    """Return the runtime variant called ``name``; imports only that plugin.

    Raises :class:`~pto_core.errors.PluginError`.
    """
    record = find("runtime", name)
    runtime = cast(Runtime, load_record(record))
    _require_health(record, runtime)
    check_library(record, runtime.library())
    return runtime


def load_transport(name: str) -> NativeTransport | PythonTransport:
    """Return the transport called ``name``; imports only that plugin.

    ``isinstance(transport, NativeTransport)`` is true for native transports only. Raises
    :class:`~pto_core.errors.PluginError`. Raises :class:`~pto_core.errors.UsageError` if the
    transport reaches other hosts.
    """
    record = find("transport", name)
    transport = cast("NativeTransport | PythonTransport", _transport_of_reach("local", record))
    if isinstance(transport, NativeTransport):
        check_library(record, transport.library())
    return transport


def load_remote_transport(name: str) -> Any:
    """Return the transport to other hosts called ``name``; imports only that plugin.

    It is a :class:`~pto_core.hierarchy.remote_transport.RemoteTransport`. Raises
    :class:`~pto_core.errors.PluginError`. Raises :class:`~pto_core.errors.UsageError` if the
    transport reaches only children on this host.
    """
    return _transport_of_reach("remote", find("transport", name))


def load_scheduler(name: str) -> SchedulerPlugin:
    """Return the placement policy called ``name``; imports only that plugin.

    Raises :class:`~pto_core.errors.PluginError`.
    """
    record = find("scheduler", name)
    plugin = cast(SchedulerPlugin, load_record(record))
    _require_health(record, plugin)
    return plugin


def load_launcher(name: str) -> LauncherPlugin:
    """Return the launcher called ``name``; imports only that plugin.

    Raises :class:`~pto_core.errors.PluginError`.
    """
    record = find("launcher", name)
    launcher = cast(LauncherPlugin, load_record(record))
    _require_health(record, launcher)
    return launcher


def load_unopened(family: str, name: str) -> Backend | Runtime:
    """Return a plugin whose options and capabilities are read; it may be unusable here."""
    return cast("Backend | Runtime", load_record(find(family, name)))


def load_command(name: str) -> Command:
    """Import the subcommand called ``name``."""
    return cast(Command, load_record(find("command", name)))


def load_record(record: PluginRecord) -> Any:
    """Import the object that ``record`` names and check it against the interface of its family.

    An object that the program registered under that name replaces it. Any exception of the import
    becomes the cause of a :class:`~pto_core.errors.PluginLoadError`.
    """
    plugin = replacement(record)
    if plugin is not None:
        check_plugin(record, plugin)
        return plugin
    plugin = _import_object(record)
    check_plugin(record, plugin)
    if record.family != "observer":  # it is registered after the check of its hooks
        add_loaded(record, plugin)
    return plugin


def canonical_name(family: str, name: str) -> str:
    """Return the name of the plugin with the alias ``name``; return an unknown name unchanged."""
    for record in installed(family):
        if name in record.names:
            return record.name
    return name


def options_of_all() -> Mapping[str, Option]:
    """Return the options of every importable backend and runtime, by key.

    Imports all of them, so it is called only for listings and messages about unknown settings.
    """
    options: dict[str, Option] = {}
    for record in (*installed("backend"), *installed("runtime")):
        try:
            plugin = load_record(record)
        except PluginError:
            continue  # this plugin cannot be imported; `pto plugins` shows the reason
        options.update((option.key, option) for option in plugin.options())
    return options


def _import_object(record: PluginRecord) -> Any:
    module_name, _, attributes = record.value.partition(":")
    try:
        found: Any = importlib.import_module(module_name)
        for attribute in filter(None, attributes.split(".")):
            found = getattr(found, attribute)
    except Exception as error:  # the import of a plugin may raise any exception
        raise PluginLoadError(
            f"{record.family} {record.name!r} ({record.source}) cannot be imported from "
            f"{record.value}: {type(error).__name__}: {error}",
            **_identity(record),
        ) from error
    return found


def _transport_of_reach(reach: str, record: PluginRecord) -> Any:
    transport = load_record(record)
    _require_health(record, transport)
    if reach_of(transport) != reach:
        settings = {"local": "transport", "remote": "remote_transport"}
        hosts = {"local": "this host", "remote": "other hosts"}
        found = reach_of(transport)
        raise UsageError(
            f"{settings[reach]} is {record.name!r}, but {record.name!r} ({record.source}) reaches "
            f"children on {hosts[found]} only; use {settings[found]}={record.name!r}",
            name=settings[reach],
            value=record.name,
        )
    return transport


def _require_health(record: PluginRecord, plugin: Any) -> None:
    health = health_of(plugin)
    if not health.ok:
        raise PluginUnavailableError(
            f"{record.family} {record.name!r} ({record.source}) cannot be used on this machine: "
            f"{health.reason}; {health.fix}",
            **_identity(record),
        )


def _identity(record: PluginRecord) -> dict[str, Any]:
    return {
        "family": record.family,
        "plugin": record.name,
        "distribution": record.distribution,
        "version": record.version,
    }
