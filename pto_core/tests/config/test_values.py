"""The values that each parser accepts, and its message for an invalid text."""

from __future__ import annotations

from pathlib import Path

import pytest

from pto_core.config import load
from pto_core.errors import ConfigError
from pto_core.interfaces import parse


@pytest.mark.parametrize(
    ("parser", "text", "value"),
    [
        (parse.text, "a b", "a b"),
        (parse.boolean, "Yes", True),
        (parse.boolean, "0", False),
        (parse.path, "/x", Path("/x")),
        (parse.size_bytes, "4096", 4096),
        (parse.size_bytes, "64K", 65536),
        (parse.size_bytes, "2 GiB", 2**31),
        (parse.size_bytes, "3m", 3 * 2**20),
        (parse.size_bytes, "1 TB", 2**40),
        (parse.choice("a", "b"), "b", "b"),
        (parse.integer(), "-3", -3),
        (parse.integer(0, 255), "0xff", 255),
        (parse.number(0), "0.25", 0.25),
        (parse.optional(parse.integer()), "None", None),
        (parse.optional(parse.integer()), "4", 4),
        (parse.several(parse.integer(), 3), "7", (7, 7, 7)),
        (parse.several(parse.integer(), 3), "1, 2,3", (1, 2, 3)),
    ],
)
def test_values_that_are_accepted(parser, text, value):
    assert parser(text) == value


@pytest.mark.parametrize(
    ("parser", "text", "expected"),
    [
        (parse.text, " ", "a text that is not empty"),
        (parse.boolean, "maybe", "true or false"),
        (parse.size_bytes, "4 apples", "a size in bytes such as 4096, 64K, 16M or 2G"),
        (parse.choice("a", "b", "c"), "d", "a, b or c"),
        (parse.integer(1, 4), "5", "a whole number from 1 to 4"),
        (parse.integer(1), "1.5", "a whole number, at least 1"),
        (parse.integer(maximum=4), "5", "a whole number, at most 4"),
        (parse.number(0), "-1", "a number, at least 0"),
        (parse.number(), "nan", "a number"),
        (parse.optional(parse.integer()), "x", "a whole number, or none"),
        (parse.several(parse.integer(), 4), "1,2", "one value, or 4 values separated by commas"),
    ],
)
def test_values_that_are_refused(parser, text, expected):
    with pytest.raises(ValueError, match=f"^{expected}$"):
        parser(text)


def test_a_bad_value_names_key_value_expectation_and_origin(tmp_path):
    (tmp_path / "pto.toml").write_text('log_level = "loud"\n')
    with pytest.raises(ConfigError) as caught:
        load(cwd=tmp_path, environ={})
    error = caught.value
    assert str(error) == ("log_level = 'loud' (pto.toml:1): expected error, warn, info or debug")
    assert (error.name, error.value, error.origin) == ("log_level", "loud", "pto.toml:1")
    assert error.expected == "error, warn, info or debug"


@pytest.mark.parametrize("raw", ["device = 1979-05-27", "device = [{a = 1}]", "device = 1.5"])
def test_toml_values_of_another_kind(tmp_path, raw):
    (tmp_path / "pto.toml").write_text(raw)
    with pytest.raises(ConfigError, match=r"device = .*\(pto\.toml:1\): expected"):
        load(cwd=tmp_path, environ={})


@pytest.mark.parametrize("text", ["device", "=3", ""])
def test_set_needs_a_key_and_a_value(tmp_path, text):
    with pytest.raises(ConfigError, match="expected key=value"):
        load(set_=[text], cwd=tmp_path, environ={})


def test_set_keeps_further_equals_signs(tmp_path):
    assert load(set_=["cxx=g++ -DX=1"], cwd=tmp_path, environ={})["cxx"] == "g++ -DX=1"


def test_the_memory_of_another_host_holds_at_least_one_piece(tmp_path):
    with pytest.raises(ConfigError, match=r"= '1023K' .*: expected a size in bytes, at least 1M"):
        load(set_=["remote_memory_limit=1023K"], cwd=tmp_path, environ={})
    loaded = load(set_=["remote_memory_limit=1M"], cwd=tmp_path, environ={})
    assert loaded["remote_memory_limit"] == 2**20
