"""List the installed plugins from the metadata of distributions, without imports."""

from __future__ import annotations

import contextlib
import importlib.metadata
from collections.abc import Sequence
from dataclasses import dataclass

from pto_core.errors import (
    BackendUnavailableError,
    DuplicatePluginError,
    PluginUnavailableError,
    PtoError,
    UnknownPluginError,
)
from pto_core.errors.suggestion import suggestion
from pto_core.plugins.advice import install

FAMILIES = (
    *("backend", "runtime", "transport", "scheduler", "launcher"),
    *("command", "observer"),
)

INSIGHT = "ptorun-insight"
REMOTE = "ptorun-transport-zmq"
INSIGHT_COMMANDS = ("graph", "why", "check", "trace")
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
    ("transport", "zmq"): REMOTE,
    ("launcher", "ray"): "ptorun-launcher-ray",
    **dict.fromkeys((("launcher", name) for name in ("local", "command")), REMOTE),
    **dict.fromkeys((("command", name) for name in ("agent", "keys")), REMOTE),
    ("command", "new"): "ptorun-devkit",
    **dict.fromkeys((("command", name) for name in INSIGHT_COMMANDS), INSIGHT),
    ("insight", "insight"): INSIGHT,
}
# The laptop set, `ptorun-core[sim]`, has plugins of these families. A core without any of them
# lacks the whole set. _NOT_IN_LAPTOP_SET lists what is not in the set, or is useful alone.
_LAPTOP_FAMILIES = ("backend", "runtime", "transport")
_NOT_IN_LAPTOP_SET = (
    *("ptorun-backend-a2a3", REMOTE, "ptorun-launcher-ray", "ptorun-devkit"),
    INSIGHT,
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


def backends() -> list[PluginRecord]:
    """List the installed backends."""
    return installed("backend")


def runtimes() -> list[PluginRecord]:
    """List the installed runtime variants."""
    return installed("runtime")


def transports() -> list[PluginRecord]:
    """List the installed transports."""
    return installed("transport")


def schedulers() -> list[PluginRecord]:
    """List the installed placement policies."""
    return installed("scheduler")


def launchers() -> list[PluginRecord]:
    """List the installed launchers."""
    return installed("launcher")


def commands() -> list[PluginRecord]:
    """List the installed subcommands of ``pto`` that plugins add."""
    return installed("command")


def observers() -> list[PluginRecord]:
    """List the installed observers."""
    return installed("observer")


def distribution_of(family: str, name: str) -> str | None:
    """Return the requirement that installs a plugin of this project, or None for other names."""
    return _OURS.get((family, name))


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


def default_name(family: str, name: str) -> str:
    """Return ``name``, the default of ``family``, or the only plugin if ``name`` is not installed.

    The search of all metadata takes milliseconds, so first ask for the distribution of ``name``.
    """
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        importlib.metadata.distribution(_OURS[family, name])
        return name
    found = [record for record in installed(family) if record.distribution != REMOTE]
    is_only = len(found) == 1 and name not in found[0].names
    return found[0].name if is_only else name


def installation(family: str, name: str) -> str:
    """Return the commands that install a plugin of this project that is missing.

    They install its distribution; or the laptop set, if all of it is missing and the plugin is in
    it. The text is empty for a plugin of others.
    """
    distribution = distribution_of(family, name)
    if distribution is None:
        return ""
    has_some = any(
        record.distribution != REMOTE for each in _LAPTOP_FAMILIES for record in installed(each)
    )
    return install(distribution) if distribution in _NOT_IN_LAPTOP_SET or has_some else install()


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
    duplicate = duplicate_error(matches[0], candidates, name)
    if duplicate is not None:
        raise duplicate
    return matches[0]


def duplicate_error(
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
        if distribution_of(family, name) == INSIGHT:
            message = (
                f"graphs, race checks and traces are in {INSIGHT}, which is not installed; {fix}"
            )
        if family == "backend":
            return BackendUnavailableError(message, backend=name, reason="not installed", fix=fix)
        return PluginUnavailableError(message, family=family, plugin=name)
    message = f"no {family} called {name!r} is installed{suggestion(name, known)}; {listed}"
    if not known and family in _LAPTOP_FAMILIES:
        message += f"; to install the plugins of this project, {install()}"
    return UnknownPluginError(message, family=family, plugin=name, known=tuple(known))
