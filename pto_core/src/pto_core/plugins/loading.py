"""Importing one plugin and checking it before anybody uses it."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any, cast

from pto_core.errors import BackendUnavailableError, PluginError, PluginLoadError
from pto_core.interfaces import (
    Backend,
    Command,
    NativeTransport,
    Option,
    PythonTransport,
    Runtime,
)
from pto_core.plugins.checks import check_plugin, health_of
from pto_core.plugins.native import check_library
from pto_core.plugins.records import PluginRecord, find, installed


def load_backend(name: str) -> Backend:
    """Give the backend called ``name``, ready to open devices on this machine.

    Imports that plugin and no other. Raises
    :class:`~pto_core.errors.BackendUnavailableError` when it cannot work here (no other backend
    steps in for it), else :class:`~pto_core.errors.PluginError`.
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
    """Give the runtime variant called ``name``; imports that plugin and no other.

    Raises :class:`~pto_core.errors.PluginError`.
    """
    record = find("runtime", name)
    runtime = cast(Runtime, load_record(record))
    _require_health(record, runtime)
    check_library(record, runtime.library())
    return runtime


def load_transport(name: str) -> NativeTransport | PythonTransport:
    """Give the transport called ``name``; imports that plugin and no other.

    ``isinstance(transport, NativeTransport)`` tells the kinds apart. Raises
    :class:`~pto_core.errors.PluginError`.
    """
    record = find("transport", name)
    transport = cast("NativeTransport | PythonTransport", load_record(record))
    _require_health(record, transport)
    if isinstance(transport, NativeTransport):
        check_library(record, transport.library())
    return transport


def load_unopened(family: str, name: str) -> Backend | Runtime:
    """Give a plugin for its options and capabilities only: it need not work on this machine."""
    return cast("Backend | Runtime", load_record(find(family, name)))


def load_command(name: str) -> Command:
    """Import the subcommand called ``name``."""
    return cast(Command, load_record(find("command", name)))


def load_record(record: PluginRecord) -> Any:
    """Import the object of ``record`` and check it against its family's interface.

    Whatever its import raises comes back as a :class:`~pto_core.errors.PluginLoadError` with the
    cause chained.
    """
    plugin = _import_object(record)
    check_plugin(record, plugin)
    return plugin


def canonical_name(family: str, name: str) -> str:
    """Resolve an alias; a name that nobody has comes back as it is."""
    for record in installed(family):
        if name in record.names:
            return record.name
    return name


def options_of_all() -> Mapping[str, Option]:
    """Give the options of every backend and runtime that can be imported, by key.

    Imports them all: for listings and for messages about unknown settings.
    """
    options: dict[str, Option] = {}
    for record in (*installed("backend"), *installed("runtime")):
        try:
            plugin = load_record(record)
        except PluginError:
            continue  # `pto plugins` says why; here it only means fewer known keys
        options.update((option.key, option) for option in plugin.options())
    return options


def _import_object(record: PluginRecord) -> Any:
    module_name, _, attributes = record.value.partition(":")
    try:
        found: Any = importlib.import_module(module_name)
        for attribute in filter(None, attributes.split(".")):
            found = getattr(found, attribute)
    except Exception as error:  # a stranger's import may raise anything
        raise PluginLoadError(
            f"{record.family} {record.name!r} ({record.source}) cannot be imported from "
            f"{record.value}: {type(error).__name__}: {error}",
            **_identity(record),
        ) from error
    return found


def _require_health(record: PluginRecord, plugin: Any) -> None:
    health = health_of(plugin)
    if not health.ok:
        raise PluginLoadError(
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
