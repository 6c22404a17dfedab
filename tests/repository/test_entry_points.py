"""The plugins in the packages' metadata are those that they implement and that are installed."""

from __future__ import annotations

from importlib import import_module, metadata
from pathlib import Path

from pto_core.interfaces import (
    API_VERSION,
    Backend,
    LauncherPlugin,
    NativeTransport,
    Runtime,
    SchedulerPlugin,
)
from pto_core.worker.remote_transport import RemoteTransport

INTERFACES = {
    "pto.backends": Backend,
    "pto.runtimes": Runtime,
    "pto.transports": NativeTransport | RemoteTransport,
    "pto.schedulers": SchedulerPlugin,
    "pto.launchers": LauncherPlugin,
}
# Groups whose plugins have no library.
WITHOUT_LIBRARY = {"pto.schedulers", "pto.launchers"}


def loaded(reference: str):
    module, _, attribute = reference.partition(":")
    return getattr(import_module(module), attribute) if attribute else import_module(module)


def declared(checkout):
    for package in checkout.packages:
        for group, names in package.entry_points.items():
            for name, reference in names.items():
                yield package, group, name, reference


def test_every_declared_entry_point_is_implemented(checkout):
    for package, group, name, reference in declared(checkout):
        plugin = loaded(reference)
        assert reference.startswith(package.import_name), f"{name} points outside its package"
        if group in INTERFACES:
            assert isinstance(plugin, INTERFACES[group]), f"{reference} is not a {group[4:-1]}"
            assert plugin.api_version == API_VERSION
            if group not in WITHOUT_LIBRARY and not isinstance(plugin, RemoteTransport):
                assert Path(plugin.library()).is_file()


def test_the_first_name_of_an_entry_point_is_the_plugins_own(checkout):
    first: dict[str, str] = {}
    for _, group, name, reference in declared(checkout):
        if group in INTERFACES:
            first.setdefault(reference, name)
    for reference, name in first.items():
        assert loaded(reference).name == name


def test_installed_entry_points_are_the_declared_ones(checkout):
    ours = {package.pyproject["project"]["name"] for package in checkout.packages}
    installed = {
        (point.group, point.name, point.value)
        for distribution in metadata.distributions()
        if distribution.name in ours
        for point in distribution.entry_points
        if point.group.startswith("pto.")
    }
    assert installed == {(group, name, ref) for _, group, name, ref in declared(checkout)}


def test_the_design_names_are_there(checkout):
    names = {(group, name) for _, group, name, _ in declared(checkout)}
    assert {
        ("pto.backends", "a2a3sim"),
        ("pto.backends", "sim"),
        ("pto.runtimes", "host_build_graph"),
        ("pto.runtimes", "aicpu_build_graph"),
        ("pto.runtimes", "tensormap_and_ringbuffer"),
        ("pto.runtimes", "pto2"),
        ("pto.transports", "shm"),
        ("pto.transports", "zmq"),
        ("pto.schedulers", "least_loaded"),
        ("pto.schedulers", "near_inputs"),
        ("pto.launchers", "local"),
        ("pto.launchers", "command"),
        ("pto.launchers", "ray"),
    } <= names
