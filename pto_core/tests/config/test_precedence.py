"""The precedence of sources, and the reported origin of a value."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from pto_core.config import load, load_core
from pto_core.errors import ConfigError
from pto_core.interfaces import Option, parse

OPTIONS = (
    Option("chip.level", 3, parse.integer(0, 9), "a level", native="level"),
    Option("chip.check", False, parse.boolean, "checks", native="check"),
    Option("chip.name", None, parse.optional(parse.text), "a name", native="name"),
    Option("chip.sizes", (4,) * 4, parse.several(parse.integer(4), 4), "rings", native="sizes"),
    Option("chip.python_only", 1, parse.integer(), "not for the native library"),
    Option("graph.mode", 1, parse.integer(0, 1), "a mode", environment="PTO_OLD_NAME"),
)


def read(folder: Path, **sources):
    sources.setdefault("environ", {})
    return load(cwd=folder, options=OPTIONS, **sources)


# Settings of one key, from the weakest source to the strongest. The test adds them one by one.
LADDER = [
    ("default", {}, 0),
    ("pto.toml:2", {}, 1),
    ("environment PTO_DEVICE", {"environ": {"PTO_DEVICE": "2"}}, 2),
    ("case", {"case": {"device": 3}}, 3),
    ("--set", {"set_": ["device=4"]}, 4),
    ("argument", {"argument": {"device": 5}}, 5),
]


def test_a_stronger_source_wins_and_names_itself(tmp_path):
    sources: dict = {}
    for origin, added, value in LADDER:
        sources.update(added)
        if origin == "pto.toml:2":
            (tmp_path / "pto.toml").write_text("# settings\ndevice = 1\n")
        config = read(tmp_path, **sources)
        assert (config["device"], config.origin("device")) == (value, origin)


def test_every_core_setting_has_a_default(tmp_path):
    config = read(tmp_path)
    assert config["backend"] == "a2a3sim"
    assert config["runtime"] == "host_build_graph"
    assert (config["device"], config["block_dim"], config["aicpu_thread_num"]) == (0, 0, 3)
    assert config["task_timeout_s"] is None
    assert config["jobs"] >= 1
    assert {config.origin(key) for key in config} == {"default"}


def test_none_means_not_given(tmp_path):
    config = read(tmp_path, argument={"device": None}, case={"device": 7})
    assert config["device"] == 7


def test_the_word_none_is_a_value(tmp_path):
    config = read(tmp_path, environ={"PTO_TASK_TIMEOUT_S": "2.5"}, set_=["task_timeout_s=none"])
    assert config["task_timeout_s"] is None
    assert config.origin("task_timeout_s") == "--set"


def test_an_empty_variable_counts_as_not_set(tmp_path):
    assert read(tmp_path, environ={"CXX": "", "PTO_DEVICE": ""}).origin("cxx") == "default"


def test_published_variables(tmp_path):
    environ = {
        "PTO_LOG_LEVEL": "info",
        "PTO_ISA_ROOT": "/isa",
        "CXX": "g++-15",
        "PTO_OLD_NAME": "0",
    }
    config = read(tmp_path, environ=environ)
    assert config["log_level"] == "info"
    assert config["pto_isa_root"] == Path("/isa")
    assert config["cxx"] == "g++-15"
    assert config["graph.mode"] == 0
    assert config.origin("graph.mode") == "environment PTO_OLD_NAME"


def test_variables_of_a_case_are_reported_as_their_origin(tmp_path):
    config = read(
        tmp_path,
        environ={"PTO_OLD_NAME": "1"},
        case_environ={"PTO_OLD_NAME": "0", "OMP_NUM_THREADS": "1"},
        case_origin="kernel_config.py",
    )
    assert config["graph.mode"] == 0
    assert config.origin("graph.mode") == "kernel_config.py RUNTIME_ENV PTO_OLD_NAME"


def test_the_cache_follows_the_desktop_rules(tmp_path):
    config = read(tmp_path, environ={"XDG_CACHE_HOME": "/x/cache", "HOME": "/h"})
    assert config["cache_dir"] == Path("/x/cache/pto")
    assert read(tmp_path, environ={"HOME": "/h"})["cache_dir"] == Path("/h/.cache/pto")


def test_native_options_are_text_and_only_the_plugins_own(tmp_path):
    config = read(tmp_path, argument={"chip.check": True, "chip.sizes": (4, 8, 16, 32)})
    assert config.native_options("chip") == {"level": "3", "check": "1", "sizes": "4,8,16,32"}
    assert config.native_options("graph") == {}


def test_a_config_is_frozen_and_survives_pickling(tmp_path):
    config = read(tmp_path, argument={"chip.level": 9})
    with pytest.raises(AttributeError, match="immutable"):
        config.warnings = ()
    with pytest.raises(TypeError):
        config["device"] = 1  # type: ignore[index]
    copy = pickle.loads(pickle.dumps(config))
    assert dict(copy) == dict(config)
    assert copy.origin("chip.level") == "argument"
    assert copy.replace({"chip.level": 1})["chip.level"] == 1


def test_replace_leaves_the_first_record_alone(tmp_path):
    config = read(tmp_path)
    other = config.replace({"device": 4, "jobs": None})
    assert (config["device"], other["device"]) == (0, 4)
    assert other.origin("device") == "argument"
    assert other.origin("jobs") == "default"
    with pytest.raises(ConfigError, match="did you mean 'device'"):
        config.replace({"devise": 1})


def test_a_missing_key_is_an_error_with_a_suggestion(tmp_path):
    config = read(tmp_path)
    with pytest.raises(ConfigError, match=r"chip\.levl.*did you mean 'chip\.level'"):
        config["chip.levl"]
    assert config.get("chip.levl", 5) == 5
    assert "chip.levl" not in config


def test_the_core_alone_ignores_the_keys_of_plugins(tmp_path):
    (tmp_path / "pto.toml").write_text("device = 2\n[stranger]\nlevel = 1\n")
    config = load_core(set_=["stranger.level=2"], cwd=tmp_path, environ={})
    assert config["device"] == 2
    with pytest.raises(ConfigError, match="devise"):
        load_core(set_=["devise=2"], cwd=tmp_path, environ={})
