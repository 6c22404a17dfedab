"""Check plugin objects before use."""

from __future__ import annotations

from typing import Any

from pto_core.errors import PluginLoadError, PluginVersionError
from pto_core.errors.suggestion import suggestion
from pto_core.interfaces.command import RESERVED_COMMANDS
from pto_core.interfaces.plugin import API_VERSION, Health, Option
from pto_core.plugins.advice import reinstall
from pto_core.plugins.records import PluginRecord

_NAMED = ("name", "api_version", "capabilities")
_ATTRIBUTES = {
    "backend": _NAMED,
    "runtime": _NAMED,
    "transport": _NAMED,
    "scheduler": _NAMED,
    "launcher": _NAMED,
    "command": (),
    "observer": (),
    "insight": (),
}
_METHODS = {
    "backend": ("health", "library", "build_recipe", "options"),
    "runtime": (
        *("health", "library", "device_build", "orchestration_build", "kernel_include_dirs"),
        "options",
    ),
    "transport": ("health",),
    "scheduler": ("health", "policy"),
    "launcher": ("health", "open"),
    "command": ("add_arguments", "run"),
    "observer": (),
    "insight": ("from_native", "write_trace", "TaskGraph", "AccessLog", "WorkerTrace"),
}

_TRANSPORT_KINDS = ("library", "connect", "child")
_LOCAL_CAPABILITIES = frozenset({"in_order", "same_addresses"})
_REMOTE_CAPABILITIES = frozenset({"encrypted", "peer_keys"})
# Enough bytes for a frame header and the arguments of a task with a few tensors.
_SMALLEST_FRAME_LIMIT = 4096


def check_plugin(record: PluginRecord, plugin: Any) -> None:
    """Raise unless ``plugin`` has the members that the interface of its family requires.

    The version is checked first (:class:`~pto_core.errors.PluginVersionError`), because a plugin
    for another version may lack members.
    """
    if record.family == "command" and set(record.names) & set(RESERVED_COMMANDS):
        raise load_error(record, "has the name of one of pto's own commands")
    if "api_version" in _ATTRIBUTES[record.family]:
        _check_version(record, plugin)
    for name in (*_ATTRIBUTES[record.family], *_METHODS[record.family]):
        if not hasattr(plugin, name):
            raise load_error(record, f"has no {name!r}{suggestion(name, dir(plugin))}")
    for name in _METHODS[record.family]:
        if not callable(getattr(plugin, name)):
            raise load_error(record, f"has a {name!r} that cannot be called")
    if "name" in _ATTRIBUTES[record.family] and plugin.name not in record.names:
        raise load_error(
            record,
            f"has the name {plugin.name!r}, but its entry points have {' and '.join(record.names)}",
        )
    if "options" in _METHODS[record.family]:
        _check_options(record, plugin)
    if record.family == "transport":
        _check_transport(record, plugin)
    if record.family in ("launcher", "scheduler"):
        _check_capabilities(record, plugin, frozenset())


def reach_of(transport: Any) -> str:
    """Return whether a transport reaches children on this host or on others."""
    return "remote" if hasattr(transport, "child") else "local"


def health_of(plugin: Any) -> Health:
    """Return the health of a plugin. A plugin is unhealthy if its health() raises."""
    try:
        health = plugin.health()
    except Exception as error:  # noqa: BLE001 - a plugin may raise any exception
        return Health(False, f"health() raised {type(error).__name__}: {error}", "report it")
    if not isinstance(health, Health):
        return Health(False, f"health() returned {health!r}, not a Health", "report it")
    return health


def load_error(record: PluginRecord, what: str) -> PluginLoadError:
    """Return the error for a plugin that does not implement the interface of its family."""
    return PluginLoadError(
        f"{record.family} {record.name!r} ({record.source}, {record.value}) {what}",
        family=record.family,
        plugin=record.name,
        distribution=record.distribution,
        version=record.version,
    )


def version_error(
    record: PluginRecord, what: str, wanted: int, found: object
) -> PluginVersionError:
    """Return the error for a plugin that was built for another version of ``what``."""
    return PluginVersionError(
        f"{record.family} {record.name!r} ({record.source}) is for version {found} of the {what}, "
        f"but this core has version {wanted}; {reinstall(record.distribution)}",
        family=record.family,
        plugin=record.name,
        distribution=record.distribution,
        version=record.version,
        wanted=wanted,
        found=found,
    )


def _check_version(record: PluginRecord, plugin: Any) -> None:
    if not hasattr(plugin, "api_version"):
        raise load_error(record, "has no 'api_version'")
    if plugin.api_version != API_VERSION:
        raise version_error(record, "plugin interface", API_VERSION, plugin.api_version)


def _check_transport(record: PluginRecord, plugin: Any) -> None:
    kinds = [name for name in _TRANSPORT_KINDS if hasattr(plugin, name)]
    if not kinds:
        near = "".join(suggestion(name, dir(plugin)) for name in _TRANSPORT_KINDS)
        what = "has none of 'library' (native), 'connect' (Python) and 'child' (to other hosts)"
        raise load_error(record, what + near)
    if len(kinds) > 1:
        raise load_error(
            record,
            f"has both {kinds[0]!r} and {kinds[1]!r}; a transport must have one of them",
        )
    if not callable(getattr(plugin, kinds[0])):
        raise load_error(record, f"has a {kinds[0]!r} that cannot be called")
    is_remote = reach_of(plugin) == "remote"
    for name in ("reason_bytes", "digest_bytes") if is_remote else ("frame_limit",):
        if not hasattr(plugin, name):
            raise load_error(record, f"has no {name!r}{suggestion(name, dir(plugin))}")
    if is_remote:
        _check_capabilities(record, plugin, _REMOTE_CAPABILITIES)
        return
    _check_capabilities(record, plugin, _LOCAL_CAPABILITIES)
    if "in_order" not in plugin.capabilities:
        raise load_error(record, "does not claim 'in_order'; children need frames in order")
    limit = plugin.frame_limit
    if not isinstance(limit, int) or limit < _SMALLEST_FRAME_LIMIT:
        what = f"has a frame_limit of {limit!r}; expected at least {_SMALLEST_FRAME_LIMIT} bytes"
        raise load_error(record, what)


def _check_capabilities(record: PluginRecord, plugin: Any, known: frozenset[str]) -> None:
    unknown = set(plugin.capabilities) - known
    if unknown:
        what = f"claims the capability {min(unknown)!r}, which is not defined for a {record.family}"
        raise load_error(record, what + suggestion(min(unknown), known))


def _check_options(record: PluginRecord, plugin: Any) -> None:
    try:
        options = tuple(plugin.options())
    except Exception as error:
        what = f"fails in options(): {type(error).__name__}: {error}"
        raise load_error(record, what) from error
    for option in options:
        if not isinstance(option, Option):
            raise load_error(record, f"lists the option {option!r}, which is not an Option object")
        if "." not in option.key:
            raise load_error(
                record, f"adds the setting {option.key!r}; the key of a plugin must contain a dot"
            )
