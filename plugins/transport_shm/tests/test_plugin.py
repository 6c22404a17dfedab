"""Test the properties of the plugin object."""

from __future__ import annotations

from pto_core.interfaces import API_VERSION, NativeTransport
from pto_transport_shm import plugin


def test_it_is_a_healthy_native_transport() -> None:
    assert isinstance(plugin, NativeTransport)
    assert plugin.api_version == API_VERSION
    assert plugin.health().ok
    assert plugin.library().is_file()
