"""Find, check and load plugins.

The records of plugins are read from the metadata of installed distributions, without importing a
plugin. Loading a plugin imports only that plugin. A plugin that is broken, duplicate, misspelt or
outdated causes an error that names the distribution and its version. It does not affect other
plugins.

This module first lists the records and finds one by name. Then it checks the object that a record
names, and loads it. The plugins in use are in one pluggy ``PluginManager`` of the process::

    from pto_core import plugins

    manager = plugins.manager()
    manager.list_name_plugin()  # [("backend:a2a3sim", ...), ("observer:runs", ...)]
    manager.set_blocked("observer:runs")  # is not loaded, and gets no event
    manager.register(MyObserver())  # gets the events from now on
    manager.register(MyBackend(), "backend:a2a3sim")  # replaces the installed one

A plugin has the name ``FAMILY:NAME``. pluggy is imported with the first call of :func:`manager`, or
when an observer is installed. Without observers, events cost nothing.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import importlib.metadata
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from inspect import isclass, ismodule
from pathlib import Path
from typing import Any, cast

from pto_core import log
from pto_core.errors import (
    BackendUnavailableError,
    DuplicatePluginError,
    PluginError,
    PluginLoadError,
    PluginUnavailableError,
    PluginVersionError,
    PtoError,
    UnknownPluginError,
    UsageError,
)
from pto_core.errors.values import suggestion
from pto_core.interfaces import (
    ABI_VERSION,
    API_VERSION,
    Backend,
    Command,
    Health,
    LauncherPlugin,
    NativeTransport,
    Option,
    PythonTransport,
    Runtime,
    SchedulerPlugin,
)
from pto_core.interfaces.plugin import RESERVED_COMMANDS

FAMILIES = (
    *("backend", "runtime", "transport", "scheduler", "launcher"),
    *("command", "observer"),
)

_INSIGHT = "ptorun-insight"
_REMOTE = "ptorun-transport-zmq"
# The plugins of this project, each with its distribution. Messages about a missing plugin contain
# the commands that install it.
_OURS = {
    ("backend", "a2a3"): "ptorun-backend-a2a3",
    ("backend", "a2a3sim"): "ptorun-backend-sim",
    ("backend", "sim"): "ptorun-backend-sim",
    ("runtime", "host_build_graph"): "ptorun-runtime-hbg",
    ("runtime", "aicpu_build_graph"): "ptorun-runtime-hbg",
    ("runtime", "tensormap_and_ringbuffer"): "ptorun-runtime-pto2",
    ("runtime", "pto2"): "ptorun-runtime-pto2",
    ("transport", "shm"): "ptorun-transport-shm",
    ("transport", "zmq"): _REMOTE,
    ("launcher", "ray"): "ptorun-launcher-ray",
    **dict.fromkeys((("launcher", name) for name in ("local", "command")), _REMOTE),
    **dict.fromkeys((("command", name) for name in ("agent", "keys")), _REMOTE),
    ("command", "new"): "ptorun-devkit",
    **dict.fromkeys(
        (
            ("command", name)
            for name in (
                *("graph", "why", "check", "trace", "top"),
                *("dump", "replay", "record", "bisect"),
            )
        ),
        _INSIGHT,
    ),
    ("insight", "insight"): _INSIGHT,
}
# The laptop set, `ptorun-core[sim]`, has plugins of these families. A core without any of them
# lacks the whole set. _NOT_IN_LAPTOP_SET lists what is not in the set, or is useful alone.
_LAPTOP_FAMILIES = ("backend", "runtime", "transport")
_NOT_IN_LAPTOP_SET = (
    *("ptorun-backend-a2a3", _REMOTE, "ptorun-launcher-ray", "ptorun-devkit"),
    _INSIGHT,
)


@dataclass(frozen=True)
class PluginRecord:
    """A plugin as the metadata of its distribution describes it.

    ``name`` is the name of the first entry point, ``aliases`` are the names of other entry points
    for the same object, and ``value`` is ``module:attribute``.
    """

    family: str
    name: str
    aliases: tuple[str, ...]
    distribution: str
    version: str
    value: str

    @property
    def names(self) -> tuple[str, ...]:
        """All names by which users select the plugin."""
        return (self.name, *self.aliases)

    @property
    def source(self) -> str:
        """The distribution and its version, for messages."""
        return f"{self.distribution} {self.version}"

    @property
    def identity(self) -> dict[str, Any]:
        """The fields of a :class:`~pto_core.errors.PluginError` that identify the plugin."""
        return {
            "family": self.family,
            "plugin": self.name,
            "distribution": self.distribution,
            "version": self.version,
        }

    @property
    def registered_name(self) -> str:
        """The name in the plugin manager."""
        return f"{self.family}:{self.name}"


def installed(family: str) -> list[PluginRecord]:
    """List the installed plugins of ``family``, sorted by name; duplicates are included."""
    names: dict[tuple[str, str, str], list[str]] = {}
    for point in importlib.metadata.entry_points(group=f"pto.{family}s"):
        source = (
            (point.dist.metadata["Name"], point.dist.version) if point.dist else ("unknown", "0")
        )
        names.setdefault((*source, point.value), []).append(point.name)
    found = [
        PluginRecord(family, all_names[0], tuple(all_names[1:]), distribution, version, value)
        for (distribution, version, value), all_names in names.items()
    ]
    return sorted(found, key=lambda record: (record.name, record.source))


def find(family: str, name: str) -> PluginRecord:
    """Return the record that ``name`` selects.

    Raises :class:`UnknownPluginError` or :class:`DuplicatePluginError`. Raises
    :class:`BackendUnavailableError` or :class:`PluginUnavailableError` for a plugin of this project
    that is not installed.
    """
    candidates = installed(family)
    matches = [record for record in candidates if name in record.names]
    if not matches:
        raise _unknown(family, name, candidates)
    duplicate = _duplicate_error(matches[0], candidates, name)
    if duplicate is not None:
        raise duplicate
    return matches[0]


def canonical_name(family: str, name: str) -> str:
    """Return the name of the plugin with the alias ``name``; return an unknown name unchanged."""
    for record in installed(family):
        if name in record.names:
            return record.name
    return name


def default_name(family: str, name: str) -> str:
    """Return ``name``, the default of ``family``, or the only plugin if ``name`` is not installed.

    The search of all metadata takes milliseconds, so first ask for the distribution of ``name``.
    """
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        importlib.metadata.distribution(_OURS[family, name])
        return name
    found = [record for record in installed(family) if record.distribution != _REMOTE]
    is_only = len(found) == 1 and name not in found[0].names
    return found[0].name if is_only else name


def distribution_of(family: str, name: str) -> str | None:
    """Return the requirement that installs a plugin of this project, or None for other names."""
    return _OURS.get((family, name))


def installation(family: str, name: str) -> str:
    """Return the commands that install a plugin of this project that is missing.

    They install its distribution; or the laptop set, if all of it is missing and the plugin is in
    it. The text is empty for a plugin of others.
    """
    distribution = distribution_of(family, name)
    if distribution is None:
        return ""
    has_some = any(
        record.distribution != _REMOTE for each in _LAPTOP_FAMILIES for record in installed(each)
    )
    return install(distribution) if distribution in _NOT_IN_LAPTOP_SET or has_some else install()


def install(requirement: str = "'ptorun-core[sim]'", options: str = "") -> str:
    """Return the commands that build wheels in a checkout and install ``requirement`` from them.

    The distributions of pto are on no public index, and anyone could publish a package with such a
    name there. Therefore every message recommends commands that install from local files only.
    """
    return (
        "run `./quickstart wheels DIR` in a checkout of pto, then "
        f"`pip install --no-index --find-links DIR {options}{requirement}`"
    )


def _reinstall(distribution: str) -> str:
    """Return the advice for an installed distribution that is damaged or incompatible."""
    if distribution.startswith("ptorun-"):
        return install(f"{distribution} ptorun-core", "--no-deps --force-reinstall ")
    return f"install a version of {distribution} for this core from its original source"


def _duplicate_error(
    record: PluginRecord, others: Sequence[PluginRecord], name: str | None = None
) -> DuplicatePluginError | None:
    """Return the error if ``name``, or any name of ``record``, also selects another record."""
    wanted = {name} if name is not None else set(record.names)
    for other in others:
        shared = wanted & set(record.names) & set(other.names)
        if other != record and shared:
            clash = sorted(shared)[0]
            return DuplicatePluginError(
                f"two {record.family} plugins are called {clash!r}: {record.source} "
                f"({record.value}) and {other.source} ({other.value}); uninstall one of them",
                family=record.family,
                plugin=clash,
                distribution=(record.distribution, other.distribution),
                version=(record.version, other.version),
            )
    return None


def _unknown(family: str, name: str, candidates: Sequence[PluginRecord]) -> PtoError:
    known = sorted({known for record in candidates for known in record.names})
    listed = f"installed: {', '.join(known) or 'none'}"
    fix = installation(family, name)
    if fix:
        message = f"the {family} {name!r} is not installed; {listed}; {fix}"
        if distribution_of(family, name) == _INSIGHT:
            message = (
                f"graphs, race checks and traces are in {_INSIGHT}, which is not installed; {fix}"
            )
        if family == "backend":
            return BackendUnavailableError(message, backend=name, reason="not installed", fix=fix)
        return PluginUnavailableError(message, family=family, plugin=name)
    message = f"no {family} called {name!r} is installed{suggestion(name, known)}; {listed}"
    if not known and family in _LAPTOP_FAMILIES:
        message += f"; to install the plugins of this project, {install()}"
    return UnknownPluginError(message, family=family, plugin=name, known=tuple(known))


def load_backend(name: str) -> Backend:
    """Return the backend called ``name``. The backend is usable on this machine.

    Imports only that plugin. Raises :class:`~pto_core.errors.BackendUnavailableError` if the
    backend is not usable on this machine; no other backend is used in its place. Raises another
    :class:`~pto_core.errors.PluginError` for a defect of the plugin.
    """
    return cast(Backend, _load("backend", name))


def load_runtime(name: str) -> Runtime:
    """Return the runtime variant called ``name``; imports only that plugin.

    Raises :class:`~pto_core.errors.PluginError`.
    """
    return cast(Runtime, _load("runtime", name))


def load_transport(name: str) -> NativeTransport | PythonTransport:
    """Return the transport called ``name``; imports only that plugin.

    ``isinstance(transport, NativeTransport)`` is true for native transports only. Raises
    :class:`~pto_core.errors.PluginError`. Raises :class:`~pto_core.errors.UsageError` if the
    transport reaches other hosts.
    """
    return cast("NativeTransport | PythonTransport", _load("transport", name, "local"))


def load_remote_transport(name: str) -> Any:
    """Return the transport to other hosts called ``name``; imports only that plugin.

    It is a :class:`~pto_core.worker.remote_transport.RemoteTransport`. Raises
    :class:`~pto_core.errors.PluginError`. Raises :class:`~pto_core.errors.UsageError` if the
    transport reaches only children on this host.
    """
    return _load("transport", name, "remote")


def load_scheduler(name: str) -> SchedulerPlugin:
    """Return the placement policy called ``name``; imports only that plugin.

    Raises :class:`~pto_core.errors.PluginError`.
    """
    return cast(SchedulerPlugin, _load("scheduler", name))


def load_launcher(name: str) -> LauncherPlugin:
    """Return the launcher called ``name``; imports only that plugin.

    Raises :class:`~pto_core.errors.PluginError`.
    """
    return cast(LauncherPlugin, _load("launcher", name))


def load_unopened(family: str, name: str) -> Backend | Runtime:
    """Return a plugin for its options and capabilities. It need not be usable on this machine."""
    return cast("Backend | Runtime", load_record(find(family, name)))


def load_command(name: str) -> Command:
    """Import the subcommand called ``name``."""
    return cast(Command, load_record(find("command", name)))


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


def load_record(record: PluginRecord) -> Any:
    """Import the object that ``record`` names and check it against the interface of its family.

    An object that the program registered under that name replaces it. Any exception of the import
    becomes the cause of a :class:`~pto_core.errors.PluginLoadError`.
    """
    replaced = _replacement(record)
    plugin = _import_object(record) if replaced is None else replaced
    _check_plugin(record, plugin)
    if replaced is None and record.family != "observer":  # registered after the check of its hooks
        _add_loaded(record, plugin)
    return plugin


def _load(family: str, name: str, reach: str | None = None) -> Any:
    """Return a plugin that is healthy, has the reach, and has a library of this ABI version."""
    record = find(family, name)
    plugin = load_record(record)
    _require_health(record, plugin)
    if reach is not None:
        _require_reach(reach, record, plugin)
    if family in ("backend", "runtime", "transport") and hasattr(plugin, "library"):
        error = _library_error(record, plugin.library())
        if error is not None:
            raise error
    return plugin


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
            **record.identity,
        ) from error
    return found


def _require_health(record: PluginRecord, plugin: Any) -> None:
    health = _health_of(plugin)
    if health.ok:
        return
    message = (
        f"{record.family} {record.name!r} ({record.source}) cannot be used on this machine: "
        f"{health.reason}; {health.fix}"
    )
    if record.family == "backend":
        raise BackendUnavailableError(
            message, backend=record.name, reason=health.reason, fix=health.fix
        )
    raise PluginUnavailableError(message, **record.identity)


def _require_reach(reach: str, record: PluginRecord, transport: Any) -> None:
    found = _reach_of(transport)
    if found != reach:
        settings = {"local": "transport", "remote": "remote_transport"}
        hosts = {"local": "this host", "remote": "other hosts"}
        raise UsageError(
            f"{settings[reach]} is {record.name!r}, but {record.name!r} ({record.source}) reaches "
            f"children on {hosts[found]} only; use {settings[found]}={record.name!r}",
            name=settings[reach],
            value=record.name,
        )


_ATTRIBUTES = ("name", "api_version", "capabilities")
_FAMILIES_WITH_ATTRIBUTES = ("backend", "runtime", "transport", "scheduler", "launcher")
_METHODS = {
    "backend": ("health", "library", "build_recipe", "options"),
    "runtime": ("health", "library", "device_build", "program_interfaces", "options"),
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


def _check_plugin(record: PluginRecord, plugin: Any) -> None:
    """Raise unless ``plugin`` has the members that the interface of its family requires.

    The version is checked first (:class:`~pto_core.errors.PluginVersionError`), because a plugin
    for another version may lack members.
    """
    if record.family == "command" and set(record.names) & set(RESERVED_COMMANDS):
        raise _load_error(record, "has the name of one of pto's own commands")
    attributes = _ATTRIBUTES if record.family in _FAMILIES_WITH_ATTRIBUTES else ()
    if attributes:
        _check_version(record, plugin)
    for name in (*attributes, *_METHODS[record.family]):
        if not hasattr(plugin, name):
            raise _load_error(record, f"has no {name!r}{suggestion(name, dir(plugin))}")
    for name in _METHODS[record.family]:
        if not callable(getattr(plugin, name)):
            raise _load_error(record, f"has a {name!r} that cannot be called")
    if attributes and plugin.name not in record.names:
        raise _load_error(
            record,
            f"has the name {plugin.name!r}, but its entry points have {' and '.join(record.names)}",
        )
    if "options" in _METHODS[record.family]:
        _check_options(record, plugin)
    if record.family == "transport":
        _check_transport(record, plugin)
    if record.family in ("launcher", "scheduler"):
        _check_capabilities(record, plugin, frozenset())


def _reach_of(transport: Any) -> str:
    """Return whether a transport reaches children on this host or on others."""
    return "remote" if hasattr(transport, "child") else "local"


def _health_of(plugin: Any) -> Health:
    """Return the health of a plugin. A plugin is unhealthy if its health() raises."""
    try:
        health = plugin.health()
    except Exception as error:  # noqa: BLE001 - a plugin may raise any exception
        return Health(False, f"health() raised {type(error).__name__}: {error}", "report it")
    if not isinstance(health, Health):
        return Health(False, f"health() returned {health!r}, not a Health", "report it")
    return health


def _check_version(record: PluginRecord, plugin: Any) -> None:
    if not hasattr(plugin, "api_version"):
        raise _load_error(record, "has no 'api_version'")
    if plugin.api_version != API_VERSION:
        raise _version_error(record, "plugin interface", API_VERSION, plugin.api_version)


def _check_transport(record: PluginRecord, plugin: Any) -> None:
    kinds = [name for name in _TRANSPORT_KINDS if hasattr(plugin, name)]
    if not kinds:
        near = "".join(suggestion(name, dir(plugin)) for name in _TRANSPORT_KINDS)
        what = "has none of 'library' (native), 'connect' (Python) and 'child' (to other hosts)"
        raise _load_error(record, what + near)
    if len(kinds) > 1:
        raise _load_error(
            record,
            f"has both {kinds[0]!r} and {kinds[1]!r}; a transport must have one of them",
        )
    if not callable(getattr(plugin, kinds[0])):
        raise _load_error(record, f"has a {kinds[0]!r} that cannot be called")
    is_remote = _reach_of(plugin) == "remote"
    for name in ("reason_bytes", "digest_bytes", "buffers") if is_remote else ("frame_limit",):
        if not hasattr(plugin, name):
            raise _load_error(record, f"has no {name!r}{suggestion(name, dir(plugin))}")
    if is_remote:
        _check_capabilities(record, plugin, _REMOTE_CAPABILITIES)
        return
    _check_capabilities(record, plugin, _LOCAL_CAPABILITIES)
    if "in_order" not in plugin.capabilities:
        raise _load_error(record, "does not claim 'in_order'; children need frames in order")
    limit = plugin.frame_limit
    if not isinstance(limit, int) or limit < _SMALLEST_FRAME_LIMIT:
        what = f"has a frame_limit of {limit!r}; expected at least {_SMALLEST_FRAME_LIMIT} bytes"
        raise _load_error(record, what)


def _check_capabilities(record: PluginRecord, plugin: Any, known: frozenset[str]) -> None:
    unknown = set(plugin.capabilities) - known
    if unknown:
        what = f"claims the capability {min(unknown)!r}, which is not defined for a {record.family}"
        raise _load_error(record, what + suggestion(min(unknown), known))


def _check_options(record: PluginRecord, plugin: Any) -> None:
    try:
        options = tuple(plugin.options())
    except Exception as error:
        what = f"fails in options(): {type(error).__name__}: {error}"
        raise _load_error(record, what) from error
    for option in options:
        if not isinstance(option, Option):
            raise _load_error(record, f"lists the option {option!r}, which is not an Option object")
        if "." not in option.key:
            raise _load_error(
                record, f"adds the setting {option.key!r}; the key of a plugin must contain a dot"
            )


def _library_error(record: PluginRecord, path: Path) -> PluginLoadError | PluginVersionError | None:
    """Return the error that loading a plugin's native library causes, or None."""
    if not path.is_file():
        fix = _reinstall(record.distribution)
        return _load_error(record, f"has no native library at {path}; {fix}")
    symbol = f"pto_{record.family}_entry"
    try:
        library = ctypes.CDLL(str(path), mode=os.RTLD_NOW | os.RTLD_LOCAL)
        entry = getattr(library, symbol)
    except (OSError, AttributeError) as error:
        return _load_error(record, f"has a native library that cannot be used: {error}")
    # The first member of every table is its version, in all versions of the ABI.
    entry.restype = ctypes.POINTER(ctypes.c_uint32)
    table = entry() if record.family == "backend" else entry(record.name.encode())
    if not table:
        return _load_error(record, f"has a native library whose {symbol}() returns no table")
    if table[0] != ABI_VERSION:
        return _version_error(record, "native ABI", ABI_VERSION, table[0])
    return None


def _load_error(record: PluginRecord, what: str) -> PluginLoadError:
    """Return the error for a plugin that does not implement the interface of its family."""
    return PluginLoadError(
        f"{record.family} {record.name!r} ({record.source}, {record.value}) {what}",
        **record.identity,
    )


def _version_error(
    record: PluginRecord, what: str, wanted: int, found: object
) -> PluginVersionError:
    """Return the error for a plugin that was built for another version of ``what``."""
    return PluginVersionError(
        f"{record.family} {record.name!r} ({record.source}) is for version {found} of the {what}, "
        f"but this core has version {wanted}; {_reinstall(record.distribution)}",
        **record.identity,
        wanted=wanted,
        found=found,
    )


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
    problem: PluginError | None = _duplicate_error(record, others)
    if problem is not None:
        return Inspection(
            record, nothing, Health(False, problem.message, "uninstall one of the plugins")
        )
    try:
        plugin = load_record(record)
        if record.family == "observer":
            _check_observer(record, plugin)
    except PluginError as error:
        health = Health(False, error.message, _reinstall(record.distribution))
        return Inspection(record, nothing, health)
    capabilities = frozenset(getattr(plugin, "capabilities", ()))
    reach = _reach_of(plugin) if record.family == "transport" else None
    return Inspection(record, capabilities, _health(record, plugin), reach)


def _health(record: PluginRecord, plugin: Any) -> Health:
    if record.family in ("command", "observer"):
        return Health(True)
    health = _health_of(plugin)
    if health.ok and hasattr(plugin, "library"):
        problem = _library_error(record, plugin.library())
        if problem is not None:
            return Health(False, problem.message, _reinstall(record.distribution))
    return health


class Registered:
    """The plugins in use.

    ``loaded``: the plugins that the core has loaded, by name. ``manager``: None until it is needed.
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
        registered.manager = _new_manager()
        for name, plugin in registered.loaded.items():
            if not registered.manager.is_registered(plugin):
                registered.manager.register(plugin, name)
    return registered.manager


def _new_manager() -> Any:
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


def _replacement(record: PluginRecord) -> Any:
    """Return the object that the program registered in place of a plugin, or None.

    Raises PluginUnavailableError if the program has blocked the plugin.
    """
    name = record.registered_name
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


def _add_loaded(record: PluginRecord, plugin: Any) -> None:
    """Register a plugin that was loaded, in place of one of the same name."""
    name = record.registered_name
    registered.loaded[name] = plugin
    if registered.manager is not None and not registered.manager.is_registered(plugin):
        if registered.manager.has_plugin(name):
            registered.manager.unregister(name=name)
        registered.manager.register(plugin, name)


def _remove_others(family: str, records: Sequence[PluginRecord]) -> None:
    """Unregister the loaded plugins of a family that are not installed any more."""
    kept = {record.registered_name for record in records}
    for name in [name for name in registered.loaded if name.startswith(f"{family}:")]:
        if name not in kept:
            plugin = registered.loaded.pop(name)
            if registered.manager is not None and registered.manager.is_registered(plugin):
                registered.manager.unregister(plugin)


def _is_blocked(record: PluginRecord) -> bool:
    """Return whether the program has blocked a plugin."""
    return registered.manager is not None and bool(
        registered.manager.is_blocked(record.registered_name)
    )


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
    _remove_others("observer", found)
    problems: list[PluginError] = []
    for record in found:
        if _is_blocked(record):
            continue
        duplicate = _duplicate_error(record, found)
        try:
            if duplicate is not None:
                raise duplicate
            manager()
            if _replacement(record) is None:
                _load_observer(record)
        except PluginError as error:
            problems.append(error)
    return Observers(tuple(problems))


def _load_observer(record: PluginRecord) -> Any:
    """Import, check and register an observer."""
    plugin = load_record(record)
    _check_observer(record, plugin)
    _add_loaded(record, plugin)
    return plugin


def _check_observer(record: PluginRecord, plugin: Any) -> None:
    """Raise unless each hook of ``plugin`` is known, has the marker, and has a valid signature.

    pluggy silently ignores a hook with a misspelt name or without the marker ``@hookimpl``.
    """
    from pto_core.plugins.hooks import Hooks

    known = [name for name in vars(Hooks) if name.startswith("pto_")]
    implemented = [name for name in dir(plugin) if _is_hook(name, getattr(plugin, name, None))]
    for name in implemented:
        if name not in known:
            hint = suggestion(name, known) or f"; hooks: {', '.join(known)}"
            raise _load_error(record, f"has a hook {name!r} that does not exist{hint}")
        if not hasattr(getattr(plugin, name), "pto_impl"):
            raise _load_error(record, f"does not mark its hook {name!r} with @hookimpl")
    if not implemented:
        raise _load_error(record, f"implements no hook; hooks: {', '.join(known)}")
    _check_signatures(record, plugin)


def _is_hook(name: str, value: object) -> bool:
    if ismodule(value) or isclass(value) or not callable(value):
        return False
    return name.startswith("pto_") or hasattr(value, "pto_impl")


def _check_signatures(record: PluginRecord, plugin: Any) -> None:
    import pluggy

    try:
        _new_manager().register(plugin)
    except pluggy.PluginValidationError as error:
        what = "has a hook with an invalid signature: " + " ".join(str(error).split())
        raise _load_error(record, what) from error
