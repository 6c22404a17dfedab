"""Test the plugin object's properties."""

from __future__ import annotations

from pathlib import Path

import pytest

import pto_transport_shm.mailbox
from pto_core.interfaces import API_VERSION, NativeTransport
from pto_transport_shm import plugin


def test_it_is_a_healthy_native_transport() -> None:
    assert isinstance(plugin, NativeTransport)
    assert plugin.api_version == API_VERSION
    assert plugin.health().ok
    assert plugin.library().is_file()


def test_a_missing_library_is_unhealthy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(pto_transport_shm.mailbox, "_PACKAGE", tmp_path)
    health = plugin.health()
    assert not health.ok
    assert "libpto_transport_shm.so is missing" in health.reason
    assert health.fix
