"""Loading one plugin imports only that plugin, and reports its defects."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from pto_core import interfaces, plugins
from pto_core.errors import (
    BackendUnavailableError,
    PluginError,
    PluginLoadError,
    PluginUnavailableError,
    PluginVersionError,
    UsageError,
)
from pto_core.worker.remote_transport import RemoteTransport

CONNECTS = ("def library(self)", "def connect(self, connection)")
UNHEALTHY = ("Health(ok=True)", "Health(False, 'this machine has no card', 'install a card')")


# Invariant: Loading a plugin imports no other plugin, and the core imports none.
def test_loading_one_plugin_imports_no_other(site, native_library):
    for name in ("red", "blue"):
        site.backend(name, library=native_library("backend", 0))
    site.runtime("graph")
    assert plugins.load_backend("red").capabilities == {"threads"}
    assert "fake_red" in sys.modules
    assert "fake_blue" not in sys.modules
    assert "fake_graph" not in sys.modules


def test_an_alias_loads_the_same_object(site, native_library):
    site.backend("red", library=native_library("backend", 0))
    (points,) = site.folder.glob("fake_red-1.0.dist-info/entry_points.txt")
    points.write_text(points.read_text() + "scarlet = fake_red:plugin\n")
    assert plugins.load_backend("scarlet") is plugins.load_backend("red")


def test_a_runtime(site, native_library):
    site.runtime("graph", library=native_library("runtime", 0))
    assert plugins.load_runtime("graph").name == "graph"


def test_a_native_transport(site, native_library):
    site.transport("wire", library=native_library("transport", 0))
    assert isinstance(plugins.load_transport("wire"), interfaces.NativeTransport)


def test_a_transport_may_have_the_smallest_frame_limit(site, native_library):
    site.transport(
        "wire",
        ("frame_limit = 65536", "frame_limit = 4096"),
        library=native_library("transport", 0),
    )
    assert plugins.load_transport("wire").frame_limit == 4096


def test_a_transport_in_python(site):
    site.transport("wire", CONNECTS)
    wire = plugins.load_transport("wire")
    assert isinstance(wire, interfaces.PythonTransport)
    assert not isinstance(wire, interfaces.NativeTransport)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("def library", "def librari"), "none of 'library' .*, 'connect' .*mean 'librari'"),
        (("plugin = Fake()", "plugin = Fake()\nplugin.connect = len"), "both 'library' and"),
        (("def library(self)", "library = 3\n    def other(self)"), "'library' that cannot be"),
        (('"in_order", ', ""), "does not claim 'in_order'"),
        (
            ("same_addresses", "same_adresses"),
            "not defined for a transport; did you mean 'same_addresses'",
        ),
        (("frame_limit = 65536", "frame_limit = 64"), "frame_limit of 64; expected at least 4096"),
        (("frame_limit =", "frame_size ="), "has no 'frame_limit'"),
        (("def health", "def healthy"), "has no 'health'"),
        (('name = "wire"', 'name = "cable"'), "the name 'cable', but its entry points have wire"),
    ],
)
def test_invalid_transports_are_refused(site, native_library, change, message):
    site.transport("wire", change, library=native_library("transport", 0))
    with pytest.raises(PluginLoadError, match=message) as caught:
        plugins.load_transport("wire")
    assert "'wire' (fake-wire 1.0" in str(caught.value)
    (listed,) = [i for i in plugins.inspect_all() if i.record.name == "wire"]
    assert not listed.health.ok


def test_an_unhealthy_transport_states_cause_and_remedy(site):
    site.transport("wire", CONNECTS, UNHEALTHY)
    with pytest.raises(PluginLoadError, match="this machine has no card; install a card"):
        plugins.load_transport("wire")


def test_an_import_that_fails_names_the_plugin_and_keeps_the_cause(site):
    site.backend("red", ("class Fake:", "import no_such_module\nclass Fake:"))
    with pytest.raises(PluginLoadError, match=r"'red' \(fake-red 1\.0\).*no_such_module") as caught:
        plugins.load_backend("red")
    assert isinstance(caught.value.__cause__, ModuleNotFoundError)
    assert (caught.value.family, caught.value.plugin) == ("backend", "red")
    assert (caught.value.distribution, caught.value.version) == ("fake-red", "1.0")


def test_an_entry_point_without_its_object(site):
    site.backend("red", ("plugin = Fake()", ""))
    with pytest.raises(PluginLoadError, match="cannot be imported from fake_red:plugin"):
        plugins.load_backend("red")


def test_one_broken_plugin_stops_no_other(site, native_library):
    site.backend("red", ("class Fake:", "raise RuntimeError('broken')\nclass Fake:"))
    site.backend("blue", library=native_library("backend", 0))
    assert plugins.load_backend("blue").name == "blue"
    listed = {i.record.name: i for i in plugins.inspect_all()}
    assert not listed["red"].health.ok
    assert "RuntimeError: broken" in listed["red"].health.reason
    assert listed["blue"].health.ok
    assert listed["blue"].capabilities == {"threads"}


@pytest.mark.parametrize(
    ("member", "renamed"),
    [
        ("def library", "def librari"),
        ("def build_recipe", "def build_receipt"),
        ("def health", "def healthy"),
        ("def options", "def settings"),
        ("capabilities =", "abilities ="),
        ("api_version =", "version ="),
    ],
)
def test_a_missing_member_is_named(site, member, renamed):
    site.backend("red", (member, renamed))
    name = member.removeprefix("def ").removesuffix(" =")
    with pytest.raises(PluginLoadError, match=rf"fake-red 1\.0.* has no '{name}'"):
        plugins.load_unopened("backend", "red")


def test_a_misspelt_method_is_suggested(site):
    site.backend("red", ("def library", "def librari"))
    with pytest.raises(PluginLoadError, match="did you mean 'librari'"):
        plugins.load_unopened("backend", "red")


def test_a_method_that_cannot_be_called(site):
    site.runtime("graph", ("plugin = Fake()", "plugin = Fake()\nplugin.library = Path('x')"))
    with pytest.raises(PluginLoadError, match="a 'library' that cannot be called"):
        plugins.load_unopened("runtime", "graph")


def test_a_name_that_is_not_its_entry_points(site):
    site.backend("red", ('name = "red"', 'name = "blue"'))
    with pytest.raises(PluginLoadError, match="has the name 'blue', but its entry points have red"):
        plugins.load_unopened("backend", "red")


def test_another_interface_version_names_both_numbers(site):
    site.backend("red", ("= API_VERSION", "= API_VERSION + 7"))
    with pytest.raises(PluginVersionError, match=r"version 7 .* this core has version 0") as caught:
        plugins.load_unopened("backend", "red")
    assert (caught.value.found, caught.value.wanted) == (7, 0)
    assert "fake-red 1.0" in str(caught.value)


def test_a_remote_transport(site):
    site.remote_transport("wire")
    wire = plugins.load_remote_transport("wire")
    assert isinstance(wire, RemoteTransport)
    (listed,) = [i for i in plugins.inspect_all() if i.record.name == "wire"]
    assert (listed.health.ok, listed.reach) == (True, "remote")
    assert listed.capabilities == {"encrypted", "peer_keys"}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("def child", "def chid"), "has none of 'library'.*did you mean 'chid'"),
        (("= digest_bytes", "= digestbytes"), "no 'digest_bytes'; did you mean 'digestbytes'"),
        (("def buffers", "def buffer"), "no 'buffers'; did you mean 'buffer'"),
        (
            ("def child(self, worker, path, sibling=None): ...", "child = 3"),
            "'child' that cannot be called",
        ),
        (
            ('"peer_keys"', '"peer_key"'),
            "'peer_key', which is not defined for a transport; did you mean 'peer_keys'",
        ),
        (('name = "wire"', 'name = "cable"'), "the name 'cable', but its entry points have wire"),
    ],
)
def test_invalid_remote_transports_are_refused(site, change, words):
    site.remote_transport("wire", change)
    with pytest.raises(PluginLoadError, match=words) as caught:
        plugins.load_remote_transport("wire")
    assert "'wire' (fake-wire 1.0" in str(caught.value)


def test_an_unhealthy_remote_transport_is_refused(site):
    site.remote_transport("wire", UNHEALTHY)
    with pytest.raises(PluginUnavailableError, match="this machine has no card; install a card"):
        plugins.load_remote_transport("wire")


def test_a_transport_of_the_other_reach_is_refused(site):
    site.remote_transport("wire")
    site.transport("bus")
    with pytest.raises(UsageError, match="on other hosts only; use remote_transport='wire'"):
        plugins.load_transport("wire")
    with pytest.raises(UsageError, match="on this host only; use transport='bus'"):
        plugins.load_remote_transport("bus")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("def open(", "def opens("), "has no 'open'; did you mean 'opens'"),
        (("frozenset()", 'frozenset({"gang"})'), "'gang', which is not defined for a launcher"),
        (('name = "red"', 'name = "blue"'), "has the name 'blue', but its entry points have red"),
    ],
)
def test_invalid_launchers_are_refused(site, change, message):
    site.launcher("red", change)
    with pytest.raises(PluginLoadError, match=message):
        plugins.load_launcher("red")
    (listed,) = [i for i in plugins.inspect_all() if i.record.name == "red"]
    assert not listed.health.ok


def test_launchers_are_found_by_name(site):
    site.launcher("red")
    assert isinstance(plugins.load_launcher("red"), interfaces.LauncherPlugin)
    assert "red" in {record.name for record in plugins.installed("launcher")}
    site.launcher("blue", UNHEALTHY)
    with pytest.raises(PluginUnavailableError, match="this machine has no card; install a card"):
        plugins.load_launcher("blue")
    with pytest.raises(PluginError, match=r"no launcher called 'bleu' .*; did you mean 'blue'"):
        plugins.load_launcher("bleu")


def test_a_scheduler(site):
    site.scheduler("red")
    assert isinstance(plugins.load_scheduler("red"), interfaces.SchedulerPlugin)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("def policy(self)", "def polly(self)"), "has no 'policy'; did you mean 'polly'"),
        (("def policy(self)", "policy = 3\n    def other(self)"), "'policy' that cannot be called"),
        (
            ("frozenset()", 'frozenset({"policy"})'),
            "'policy', which is not defined for a scheduler",
        ),
        (("def health", "def healthy"), "has no 'health'"),
        (('name = "red"', 'name = "blue"'), "has the name 'blue', but its entry points have red"),
    ],
)
def test_invalid_schedulers_are_refused(site, change, message):
    site.scheduler("red", change)
    with pytest.raises(PluginLoadError, match=message):
        plugins.load_scheduler("red")
    (listed,) = [i for i in plugins.inspect_all() if i.record.name == "red"]
    assert not listed.health.ok


def test_an_unhealthy_scheduler_is_refused(site):
    site.scheduler("red", UNHEALTHY)
    with pytest.raises(PluginUnavailableError, match="this machine has no card; install a card"):
        plugins.load_scheduler("red")


@pytest.mark.parametrize("family", ["backend", "runtime", "transport"])
def test_another_abi_version_names_both_numbers(site, native_library, family):
    getattr(site, family)("red", library=native_library(family, 9))
    load = getattr(plugins, f"load_{family}")
    with pytest.raises(PluginVersionError, match=r"version 9 of the native ABI") as caught:
        load("red")
    assert (caught.value.found, caught.value.wanted) == (9, 0)


def test_a_library_file_that_does_not_exist(site):
    site.backend("red")
    advice = "install a version of fake-red for this core from its original source"
    with pytest.raises(PluginLoadError, match=rf"no native library at .*; {advice}"):
        plugins.load_backend("red")


def test_a_library_of_the_other_family(site, native_library):
    site.backend("red", library=native_library("runtime", 0))
    with pytest.raises(PluginLoadError, match="pto_backend_entry"):
        plugins.load_backend("red")


def test_a_library_that_is_no_library(site, tmp_path):
    (tmp_path / "text.so").write_text("hello")
    site.backend("red", library=tmp_path / "text.so")
    with pytest.raises(PluginLoadError, match="native library that cannot be used"):
        plugins.load_backend("red")


def test_an_unhealthy_backend_states_cause_and_remedy(site, native_library):
    site.backend("red", UNHEALTHY, library=native_library("backend", 0))
    site.backend("a2a3simulator", library=native_library("backend", 0))
    with pytest.raises(BackendUnavailableError) as caught:
        plugins.load_backend("red")  # does not fall back to another backend
    assert (caught.value.backend, caught.value.exit_code) == ("red", 5)
    assert caught.value.reason == "this machine has no card"
    assert caught.value.fix == "install a card"
    assert "this machine has no card; install a card" in str(caught.value)


def test_an_unhealthy_backend_still_has_options(site):
    site.backend("red", UNHEALTHY)
    plugin = plugins.load_unopened("backend", "red")
    assert [option.key for option in plugin.options()] == ["red.level"]


def test_a_health_that_raises_is_not_healthy(site):
    site.runtime("graph", ("return Health(ok=True)", "raise OSError('no bus')"))
    with pytest.raises(PluginUnavailableError, match="OSError: no bus") as caught:
        plugins.load_runtime("graph")
    assert caught.value.exit_code == BackendUnavailableError.exit_code


def test_options_are_checked(site):
    site.backend("red", ('"red.level"', '"level"'))
    with pytest.raises(PluginLoadError, match="'level'; the key of a plugin must contain a dot"):
        plugins.load_unopened("backend", "red")


@pytest.mark.parametrize("failing", ["return (1 / 0, Option", "yield 1 / 0; return (Option"])
def test_options_that_fail(site, failing):
    site.backend("red", ("return (Option", failing))
    with pytest.raises(PluginLoadError, match=r"options.*ZeroDivisionError"):
        plugins.load_unopened("backend", "red")


def test_a_plugin_command_cannot_replace_a_core_command(site):
    site.module("fake_run", "def add_arguments(parser): ...\ndef run(namespace): return 0\n")
    site.install("fake-run", {"pto.commands": "run = fake_run"})
    with pytest.raises(PluginLoadError, match="one of pto's own commands"):
        plugins.load_command("run")


def test_the_interface_is_checked_by_the_names_that_it_declares():
    """The checks list all members of the protocols, so that a new member cannot be forgotten."""
    for family, protocol in (
        ("backend", interfaces.Backend),
        ("runtime", interfaces.Runtime),
        ("transport", interfaces.Transport),
        ("scheduler", interfaces.SchedulerPlugin),
        ("launcher", interfaces.LauncherPlugin),
    ):
        members = {name: getattr(protocol, name) for name in dir(protocol) if name[0] != "_"}
        members.pop("frame_limit", None)  # of local transports only
        attributes = {name for name, each in members.items() if isinstance(each, property)}
        assert set(plugins._METHODS[family]) == members.keys() - attributes
        assert set(plugins._ATTRIBUTES) == attributes


def test_the_kinds_of_transports_differ_by_one_method_each():
    kinds = (interfaces.NativeTransport, interfaces.PythonTransport)
    own = [{name for name in vars(kind) if not name.startswith("_")} for kind in kinds]
    assert own == [{name} for name in plugins._TRANSPORT_KINDS[:2]]


def test_the_abi_version_is_that_of_the_header():
    header = Path(__file__).parents[2] / "include" / "pto" / "abi" / "version.h"
    found = re.search(r"#define PTO_ABI_VERSION (\d+)u", header.read_text())
    assert found is not None
    assert int(found[1]) == interfaces.ABI_VERSION


def test_errors_of_plugins_are_usage_errors_to_the_shell():
    assert PluginLoadError.exit_code == UsageError.exit_code == 2
