"""Records are read from metadata only; names are unique; unknown names are explained."""

from __future__ import annotations

import re
import sys

import pytest

from pto_core import plugins
from pto_core.errors import (
    BackendUnavailableError,
    DuplicatePluginError,
    PluginUnavailableError,
    UnknownPluginError,
)
from pto_core.plugins import find

INSTALL = "`pip install --no-index --find-links DIR 'ptorun-core[sim]'`"


def test_a_record_has_the_metadata_and_imports_nothing(site):
    site.install(
        "fake-many",
        {"pto.backends": "scarlet = fake_never:plugin\ncrimson = fake_never:plugin"},
        version="2.5",
    )
    (record,) = [r for r in plugins.installed("backend") if r.distribution == "fake-many"]
    assert (record.family, record.name, record.aliases) == ("backend", "scarlet", ("crimson",))
    assert (record.version, record.value) == ("2.5", "fake_never:plugin")
    assert record.source == "fake-many 2.5"
    assert "fake_never" not in sys.modules  # no such module exists, so an import would have failed


def test_the_first_name_in_the_file_is_the_name_of_the_plugin(site):
    site.install("fake-many", {"pto.runtimes": "zebra = fake_z:plugin\nant = fake_z:plugin"})
    (record,) = [r for r in plugins.installed("runtime") if r.distribution == "fake-many"]
    assert record.names == ("zebra", "ant")
    assert plugins.canonical_name("runtime", "ant") == "zebra"
    assert plugins.canonical_name("runtime", "unknown") == "unknown"


def test_one_distribution_may_have_several_plugins(site):
    site.install("fake-two", {"pto.transports": "left = fake_two:left\nright = fake_two:right"})
    found = [r.name for r in plugins.installed("transport") if r.distribution == "fake-two"]
    assert found == ["left", "right"]


def test_a_name_of_two_distributions_is_an_error_that_names_both(site):
    site.backend("red")
    site.install("other-red", {"pto.backends": "red = elsewhere:plugin"}, version="3.1")
    with pytest.raises(DuplicatePluginError) as caught:
        plugins.load_backend("red")
    message = str(caught.value)
    assert "fake-red 1.0" in message
    assert "other-red 3.1" in message
    assert "uninstall one of them" in message
    assert set(caught.value.distribution) == {"fake-red", "other-red"}
    assert set(caught.value.version) == {"1.0", "3.1"}
    assert "fake_red" not in sys.modules


def test_a_duplicate_alias_is_found_too(site):
    site.install("fake-a", {"pto.backends": "first = fake_a:plugin\nshared = fake_a:plugin"})
    site.install("fake-b", {"pto.backends": "shared = fake_b:plugin"})
    with pytest.raises(DuplicatePluginError, match="two backend plugins are called 'shared'"):
        plugins.load_backend("shared")
    listed = [i for i in plugins.inspect_all() if i.record.distribution in ("fake-a", "fake-b")]
    assert len(listed) == 2
    for inspection in listed:
        assert not inspection.health.ok
        assert "two backend plugins are called 'shared'" in inspection.health.reason


def test_a_duplicate_alias_leaves_the_other_name_usable(site):
    site.install("fake-a", {"pto.backends": "first = fake_a:plugin\nshared = fake_a:plugin"})
    site.install("fake-b", {"pto.backends": "shared = fake_b:plugin"})
    assert find("backend", "first").distribution == "fake-a"


def test_duplicates_stop_no_other_plugin(site, native_library):
    site.backend("red", library=native_library("backend", 0))
    site.install("fake-a", {"pto.backends": "twice = fake_a:plugin"})
    site.install("fake-b", {"pto.backends": "twice = fake_b:plugin"})
    assert plugins.load_backend("red").name == "red"


def test_an_unknown_name_lists_the_known_and_suggests(site):
    site.backend("crimson")
    with pytest.raises(UnknownPluginError) as caught:
        plugins.load_backend("crimsom")
    assert "no backend called 'crimsom' is installed; did you mean 'crimson'?" in str(caught.value)
    assert "crimson" in caught.value.known
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("a2a3sim", INSTALL),
        ("sim", INSTALL),
        ("a2a3", "pip install --no-index --find-links DIR ptorun-backend-a2a3"),
    ],
)
def test_messages_about_our_backends_name_the_installation(monkeypatch, name, advice):
    monkeypatch.setattr("importlib.metadata.entry_points", nothing)
    with pytest.raises(BackendUnavailableError) as caught:
        plugins.load_unopened("backend", name)
    assert f"the backend {name!r} is not installed" in caught.value.message
    assert advice in caught.value.message
    assert caught.value.exit_code == 5


@pytest.mark.parametrize(
    ("family", "name"),
    [
        ("runtime", "host_build_graph"),
        ("runtime", "aicpu_build_graph"),
        ("runtime", "tensormap_and_ringbuffer"),
        ("runtime", "pto2"),
        ("transport", "shm"),
    ],
)
def test_messages_about_our_plugins_name_the_installation(monkeypatch, family, name):
    monkeypatch.setattr("importlib.metadata.entry_points", nothing)
    with pytest.raises(PluginUnavailableError, match=re.escape(INSTALL)) as caught:
        plugins.load_unopened(family, name)
    assert caught.value.exit_code == BackendUnavailableError.exit_code == 5


def nothing(group):
    return ()
