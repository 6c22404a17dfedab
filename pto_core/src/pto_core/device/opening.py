"""Open a device with a runtime."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any
from weakref import WeakSet

from pto_core import _native, log, plugins, standard_streams
from pto_core.config import Config, given, load_with_plugins
from pto_core.config.options import CHECK
from pto_core.device.device import Device, check_blocks, check_hazards
from pto_core.errors import ConfigError, UnsupportedError, UsageError
from pto_core.kernels import CallConfig
from pto_core.toolchain import Toolchain, device_options, runtime_artefacts

# The warnings about settings that were already shown in this process.
_warned: set[str] = set()
# The devices that may still be open. All open devices of one chip have the same runtime.
_opened: WeakSet[Device] = WeakSet()


def open_device(
    backend: str | None = None,
    *,
    runtime: str | None = None,
    device: int | None = None,
    config: Config | None = None,
    settings: Mapping[str, Any] | None = None,
    **keywords: Any,
) -> Device:
    """Open a device and attach a runtime to it.

    ``backend``, ``runtime`` and ``device`` default to the configuration: ``"a2a3sim"``,
    ``"host_build_graph"`` and 0 if nothing else is set. If one of these plugins is not installed
    and only one other of its family is, that one is the default. Pass further settings as a mapping
    (``settings={"sim.mode": "deterministic"}``) or as keywords with two underscores instead of the
    dot (``sim__mode="deterministic"``). ``config``: a loaded configuration for all settings that
    are not given here. Without ``config``, the environment and the settings file are read;
    suspicious settings cause a RuntimeWarning. Logging follows the device's settings.

    Raises ConfigError for settings, PluginError for plugins, BackendUnavailableError if the backend
    cannot run on this machine, and UsageError if this process has the same device open with another
    runtime.
    """
    arguments = {"backend": backend, "runtime": runtime, "device": device, **given(settings)}
    for key, value in keywords.items():
        arguments[key.replace("__", ".")] = value
    if config is not None:
        return _open(_adapted(config, given(arguments)))
    loaded = load_with_plugins(given(arguments))
    _warn(loaded)
    return _open(loaded)


def _adapted(config: Config, given: Mapping[str, Any]) -> Config:
    """Return ``config`` with ``given``; raise UsageError if ``given`` names another plugin."""
    for family in ("backend", "runtime"):
        name = given.get(family)
        if name is not None and plugins.canonical_name(family, name) != config[family]:
            raise UsageError(
                f"the {family} is {name!r}, but the given configuration was loaded for "
                f"{config[family]!r}; omit one of them",
                name=family,
                value=name,
                expected=config[family],
            )
    return config.replace({key: given[key] for key in given if key not in ("backend", "runtime")})


def _open(config: Config) -> Device:
    standard_streams.complete()
    log.configure(config)
    _check_call_settings(config)
    _check_one_runtime(config)
    backend = plugins.load_backend(config["backend"])
    runtime = plugins.load_runtime(config["runtime"])
    observers = plugins.load_observers().log_problems()
    toolchain = Toolchain(config)
    native = _native.Device(
        backend_library=str(backend.library()),
        runtime_library=str(runtime.library()),
        variant=runtime.name,
        artefacts=runtime_artefacts(toolchain, backend, runtime),
        number=config["device"],
        backend_options=device_options(toolchain, backend, config.native_options_of(backend)),
        runtime_options=config.native_options_of(runtime),
    )
    check_blocks(config["block_dim"], native.blocks)
    _check_hazards(config, native.has_tensors)
    device = Device(native, config, backend, runtime, observers)
    _opened.add(device)
    return device


def _warn(config: Config) -> None:
    for warning in config.warnings:
        if warning not in _warned:
            _warned.add(warning)
            warnings.warn(warning, RuntimeWarning, stacklevel=3)


def _check_call_settings(config: Config) -> None:
    """Raise UsageError for an invalid value before the device is opened; name its source."""
    try:
        CallConfig(config["block_dim"], config["aicpu_thread_num"])
    except UsageError as error:
        raise ConfigError(
            f"{error} ({config.origin(error.name)})",
            name=error.name,
            value=error.value,
            expected=error.expected,
            origin=config.origin(error.name),
        ) from None


def _check_one_runtime(config: Config) -> None:
    """Raise if this process has opened the chip with another runtime."""
    for device in list(_opened):
        other = device.config
        same_chip = all(other[key] == config[key] for key in ("backend", "device"))
        if device.is_open and same_chip and other["runtime"] != config["runtime"]:
            raise UsageError(
                f"device {config['device']} of {config['backend']} is open in this process with "
                f"the runtime {other['runtime']!r}, and a process uses one runtime per chip; close "
                f"it before you open it with {config['runtime']!r}, or open it in another process",
                name="runtime",
                value=config["runtime"],
                expected=other["runtime"],
            )


def _check_hazards(config: Config, has_tensors: bool) -> None:
    """Raise UsageError if the setting does not apply to the runtime; name the value's source."""
    if config["hazards"] in (None, CHECK):
        return
    try:
        check_hazards(config["hazards"], config["runtime"], has_tensors)
    except UnsupportedError as error:
        raise UnsupportedError(
            f"{error} ({config.origin('hazards')})", name=error.name, value=error.value
        ) from None
