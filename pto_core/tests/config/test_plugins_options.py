"""Settings of the chosen plugins are read; settings of other plugins are ignored or refused."""

from __future__ import annotations

import sys

import pytest

from pto_core import Worker
from pto_core.config import load_with_plugins
from pto_core.errors import ConfigError, UnknownPluginError

CHOICE = {"backend": "red", "runtime": "graph"}


@pytest.fixture
def plugins(site):
    site.backend("red")
    site.backend("blue")
    site.runtime("graph")
    return site


def read(folder, *set_, environ=None):
    return load_with_plugins(CHOICE, set_, cwd=folder, environ=environ or {})


def test_the_chosen_plugins_options_are_part_of_the_record(plugins, tmp_path):
    config = read(tmp_path, "red.level=7", environ={"PTO_GRAPH_LEVEL": "5"})
    assert config["red.level"] == 7
    assert (config["graph.level"], config.origin("graph.level")) == (
        5,
        "environment PTO_GRAPH_LEVEL",
    )
    assert "blue.level" not in config
    assert config.native_options("red") == {"level": "7"}


@pytest.mark.parametrize(
    ("setting", "install"),
    [
        ("transport", "transport"),
        ("remote_transport", "transport"),
        ("launcher", "launcher"),
        ("policy", "scheduler"),
    ],
)
def test_a_name_of_no_plugin_is_refused_at_once(plugins, tmp_path, setting, install):
    getattr(plugins, install)("green")
    assert read(tmp_path, f"{setting}=green")[setting] == "green"
    assert "fake_green" not in sys.modules
    with pytest.raises(UnknownPluginError, match=f"no {install} called 'gren'.*mean 'green'"):
        read(tmp_path, f"{setting}=gren")
    with pytest.raises(UnknownPluginError, match="'gren'"):
        read(tmp_path, environ={f"PTO_{setting.upper()}": "gren"})
    with pytest.raises(UnknownPluginError, match="'gren'"):
        Worker(3, **{setting: "gren"})
    (tmp_path / "pto.toml").write_text(f'{setting} = "gren"\n')
    with pytest.raises(UnknownPluginError, match="'gren'"):
        read(tmp_path)


def test_only_the_chosen_plugins_are_imported(plugins, tmp_path):
    read(tmp_path)
    assert "fake_red" in sys.modules
    assert "fake_graph" in sys.modules
    assert "fake_blue" not in sys.modules


def test_the_case_may_choose_the_runtime(plugins, tmp_path):
    config = load_with_plugins(
        {"backend": "red"}, case={"runtime": "graph"}, cwd=tmp_path, environ={}
    )
    assert config["graph.level"] == 3
    assert config.origin("runtime") == "case"


def test_variables_of_the_case_may_choose_the_runtime(plugins, tmp_path):
    config = load_with_plugins(
        {"backend": "red"}, cwd=tmp_path, environ={}, case_environ={"PTO_RUNTIME": "graph"}
    )
    assert config["graph.level"] == 3
    assert config.origin("runtime") == "case RUNTIME_ENV PTO_RUNTIME"


def test_file_and_environment_may_set_options_of_other_plugins(plugins, tmp_path):
    (tmp_path / "pto.toml").write_text("[blue]\nlevel = 2\n")
    config = read(tmp_path, environ={"PTO_BLUE_LEVEL": "2"})
    assert "blue.level" not in config
    assert config.warnings == ()


def test_set_may_not_name_a_plugin_that_is_not_chosen(plugins, tmp_path):
    with pytest.raises(ConfigError, match=r"blue\.level.*not the chosen backend or runtime"):
        read(tmp_path, "blue.level=2")


def test_a_misspelt_key_of_a_plugin(plugins, tmp_path):
    (tmp_path / "pto.toml").write_text("[red]\nlevl = 2\n")
    with pytest.raises(ConfigError, match=r"pto\.toml:2\); did you mean 'red\.level'"):
        read(tmp_path)


def test_a_key_that_no_installed_plugin_has(plugins, tmp_path):
    with pytest.raises(ConfigError, match="no installed plugin has this setting"):
        read(tmp_path, "zzzzz.qqq=1")


def test_a_broken_plugin_does_not_hide_an_invalid_key(plugins, tmp_path):
    plugins.backend("broken", ("class Fake:", "import no_such_module\nclass Fake:"))
    with pytest.raises(ConfigError, match="no installed plugin has this setting"):
        read(tmp_path, "zzzzz.qqq=1")
    assert read(tmp_path, environ={"PTO_BLUE_LEVEL": "2"}).warnings == ()


def test_unused_variables_are_warned_about(plugins, tmp_path):
    environ = {
        "PTO_RED_LEVL": "1",
        "PTO2_RING_HEAP": "4096",
        "PTOMAINE": "x",
        "PTO_LOG_LEVEL": "info",
    }
    (warning,) = read(tmp_path, environ=environ).warnings
    assert "PTO_RED_LEVL" in warning
    assert "did you mean 'PTO_RED_LEVEL'" in warning


def test_an_alias_is_resolved_and_named(site, tmp_path):
    site.runtime("graph")
    site.backend("red")
    site.module(
        "many_names", "from fake_red import Fake\nplugin = Fake()\nplugin.name = 'scarlet'\n"
    )
    site.install(
        "many-names", {"pto.backends": "scarlet = many_names:plugin\ncrimson = many_names:plugin"}
    )
    config = load_with_plugins({"backend": "crimson", "runtime": "graph"}, cwd=tmp_path, environ={})
    assert config["backend"] == "scarlet"
    assert config.origin("backend") == "argument, alias 'crimson'"


def test_two_chosen_plugins_may_not_share_a_key(site, tmp_path):
    site.backend("red")
    site.runtime("graph", ("graph.level", "red.level"))
    with pytest.raises(ConfigError, match=r"'red\.level' is declared by two plugins"):
        read(tmp_path)


def test_an_unknown_plugin_is_not_replaced(plugins, tmp_path):
    with pytest.raises(UnknownPluginError, match="did you mean 'red'"):
        load_with_plugins({"backend": "redd", "runtime": "graph"}, cwd=tmp_path, environ={})
