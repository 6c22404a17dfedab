"""The settings of a Worker, checked once."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pto_core import plugins
from pto_core._native import integer
from pto_core.config import Config, check_plugin_names, load_core, load_with_plugins
from pto_core.config.options import DEVICE_MAX
from pto_core.errors import UsageError
from pto_core.errors.values import invalid_value, listed, shown
from pto_core.interfaces import NativeTransport, PythonTransport, SchedulerPlugin
from pto_core.worker.hosts import HostRequest, Hosts

LEAST_LEVEL = 3
_CHIP_LEVEL = 3
_LEVEL_NAMES = {3: "host", 4: "pod", 5: "supernode", 6: "cluster"}
_MODES = ("process",)
_CHILDREN_MAX = 1024
_SPARE_PLACES = 8

# Warnings that this process has shown; each is shown only once.
_warned: set[str] = set()


@dataclass(frozen=True)
class OtherHost:
    """Another host: the address of its agent, and the folder of the key set, or None.

    ``ship``: the top-level modules of the program that are sent to it. ``to_place``: instead of an
    address, the description of hosts that a launcher places.
    """

    address: str | None
    keys: str | None
    ship: tuple[str, ...] = ()
    to_place: Hosts | None = None

    def __str__(self) -> str:
        return f"the host {self.address}" if self.to_place is None else "the hosts of a launcher"


@dataclass(frozen=True)
class WorkerSettings:
    """The children of a Worker, and its configuration."""

    level: int
    device_ids: tuple[int, ...]
    sub_workers: int
    config: Config
    transport: NativeTransport | PythonTransport
    policy: SchedulerPlugin | None
    """The placement policy that the program or a setting names."""
    given: Mapping[str, Any] = field(default_factory=dict)
    """The settings that the program passed, unchecked; a remote Worker is built from them."""
    other_host: OtherHost | None = None
    """The other host that runs the Worker; None for this host."""
    has_config: bool = False
    """Whether the program passed a Config, which cannot be sent to another host."""
    host_request: HostRequest | None = None
    """The hosts that a launcher places for the Worker; None unless it has ``hosts``."""

    @property
    def count(self) -> int:
        """The number of children of its parent that the Worker describes."""
        return 1 if self.host_request is None else self.host_request.num

    @property
    def label(self) -> str:
        """The common prefix of the paths of all children."""
        return f"L{self.level}"

    def spare_places(self, *, has_remote: bool) -> int:
        """Return the number of places for Workers that join while the Worker runs.

        ``has_remote``: whether it has a child on another host.
        """
        if self.level == LEAST_LEVEL:
            return 0  # no Worker can be its child
        wanted: int | None = self.config["spare_workers"]
        return wanted if wanted is not None else _SPARE_PLACES * has_remote

    @property
    def task_timeout_ms(self) -> int:
        """The time limit for each task of this Worker, in milliseconds; 0 means none."""
        limit = self.config["task_timeout_s"]
        return 0 if not limit else max(1, round(limit * 1000))


def level_name(level: int) -> str:
    """Return the name of a Worker at that level, as paths contain it."""
    return _LEVEL_NAMES[level]


def worker_settings(
    level: int,
    platform: str | None,
    runtime: str | None,
    device_ids: Iterable[int],
    num_sub_workers: int,
    child_mode: object,
    config: Config | None,
    given: Mapping[str, Any],
    other_host: OtherHost | None = None,
) -> WorkerSettings:
    """Check the arguments of a Worker; raise UsageError, ConfigError or PluginError."""
    level = _level(level)
    _check_mode(child_mode)
    devices = _devices(level, device_ids)
    num_sub_workers = _count("num_sub_workers", num_sub_workers)
    for name, plugin in (("platform", platform), ("runtime", runtime)):
        if not isinstance(plugin, str | None):
            raise invalid_value(
                name,
                plugin,
                "pass the name of a plugin for chips, or None; the number of processes that "
                "run Python functions is num_sub_workers",
            )
    chosen = {"backend": platform, "runtime": runtime}
    given = {key: value for key, value in given.items() if value is not None}
    # The plugins of level 2 are those of the other host.
    record = _record(config, chosen, given, bool(devices) and other_host is None)
    check_plugin_names(record)
    to_place = None if other_host is None else other_host.to_place
    request = None if to_place is None else to_place.completed(record)
    if request is not None:
        plugins.load_launcher(request.launcher)  # reports now that it is missing
    return WorkerSettings(
        level,
        devices,
        num_sub_workers,
        record,
        _transport(record["transport"]),
        None if record["policy"] is None else plugins.load_scheduler(record["policy"]),
        {**given, **{key: value for key, value in chosen.items() if value is not None}},
        other_host,
        config is not None,
        request,
    )


def _record(
    config: Config | None, chosen: Mapping[str, Any], given: Mapping[str, Any], has_chips: bool
) -> Config:
    """Read the settings. Load plugins of level 2 only if there are chips."""
    if config is not None:
        if not isinstance(config, Config):
            raise invalid_value("config", config, "pass a Config")
        return config.replace({**given, **(chosen if has_chips else {})})
    if not has_chips:
        return load_core(given)
    found = load_with_plugins({**chosen, **given})
    for warning in found.warnings:
        if warning not in _warned:
            _warned.add(warning)
            warnings.warn(warning, RuntimeWarning, stacklevel=4)
    return found


def _transport(name: str) -> NativeTransport | PythonTransport:
    """Load the transport; raise UsageError if it does not support addresses as arguments."""
    transport = plugins.load_transport(name)
    if "same_addresses" not in transport.capabilities:
        raise UsageError(
            f"transport {transport.name!r} does not claim 'same_addresses', so addresses in the "
            "arguments of tasks are not valid in the children of a Worker; choose another one with "
            "transport=",
            name="transport",
            value=transport.name,
        )
    return transport


def _level(given: object) -> int:
    level = integer(given, min(_LEVEL_NAMES), max(_LEVEL_NAMES))
    if level is None:
        names = ", ".join(f"{number} ({name})" for number, name in _LEVEL_NAMES.items())
        raise UsageError(
            f"level {shown(given)} is not valid: a Worker has level {names}; "
            "a chip by itself (level 2) is opened with open_device",
            name="level",
            value=given,
            expected=names,
        )
    return level


def _check_mode(child_mode: object) -> None:
    word = getattr(child_mode, "name", child_mode)
    if not isinstance(word, str) or word.lower() not in _MODES:
        raise UsageError(
            f"child_mode {shown(child_mode)}: children run in processes of their own; a crash of "
            "a thread would end the whole program; omit child_mode, or pass 'PROCESS'",
            name="child_mode",
            value=child_mode,
            expected="PROCESS",
        )


def _device(given: object) -> int:
    device = integer(given, 0, DEVICE_MAX)
    if device is None:
        raise UsageError(
            f"device {shown(given)} is not a device number; pass integers from 0 to {DEVICE_MAX}",
            name="device_ids",
            value=given,
        )
    return device


def _devices(level: int, device_ids: Iterable[int]) -> tuple[int, ...]:
    advice = "pass a list of device numbers, such as [0]"
    devices = tuple(map(_device, listed("device_ids", device_ids, advice)))
    if len(set(devices)) != len(devices):
        raise UsageError(
            f"device_ids {list(devices)} names a device twice; each chip has one child",
            name="device_ids",
            value=devices,
        )
    if devices and level != _CHIP_LEVEL:
        raise UsageError(
            f"device_ids was passed to a Worker of level {level}; chips belong to level "
            f"{_CHIP_LEVEL}; pass them to a Worker(level={_CHIP_LEVEL}) and add that with "
            "add_worker",
            name="device_ids",
            value=devices,
        )
    return devices


def _count(name: str, value: object) -> int:
    count = integer(value, 0, _CHILDREN_MAX)
    if count is None:
        raise invalid_value(
            name,
            value,
            f"pass a number of children from 0 to {_CHILDREN_MAX}",
            expected=f"0 to {_CHILDREN_MAX}",
        )
    return count
