"""CallConfig: its fields, the values that it refuses, and its bytes."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from pto_core import CallConfig
from pto_core.errors import UsageError
from pto_core.kernels.call_config import with_access_log, with_dump


def test_defaults_are_the_published_ones() -> None:
    config = CallConfig()
    assert (config.block_dim, config.aicpu_thread_num, config.output_prefix) == (0, 3, "")
    assert config.pack() == struct.pack("=7i1024s", 0, 3, 0, 0, 0, 0, 0, b"")


def test_fields_have_the_offsets_of_the_abi() -> None:
    packed = CallConfig(block_dim=5, aicpu_thread_num=2, output_prefix="out/x").pack()
    assert len(packed) == 1052
    assert struct.unpack_from("=7i", packed) == (5, 2, 0, 0, 0, 0, 0)
    assert packed[28:34] == b"out/x\0"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("block_dim", -1),
        ("block_dim", 25),
        ("block_dim", 1.5),
        ("block_dim", None),
        ("aicpu_thread_num", 0),
        ("aicpu_thread_num", 5),
        ("enable_l2_swimlane", 5),
        ("enable_dump_tensor", 5),
        ("enable_pmu", -1),
        ("enable_dep_gen", 2),
        ("enable_scope_stats", "yes"),
        ("output_prefix", b"bytes"),
        ("output_prefix", "x" * 1024),
    ],
)
def test_impossible_values_are_named(name: str, value: Any) -> None:
    with pytest.raises(UsageError, match=name):
        CallConfig(**{name: value})
    changed = CallConfig()
    setattr(changed, name, value)
    with pytest.raises(UsageError, match=name):
        changed.pack()


WITH_FILES = ("enable_dump_tensor", "enable_l2_swimlane", "enable_dep_gen", "enable_scope_stats")


@pytest.mark.parametrize("name", WITH_FILES)
def test_diagnostics_with_files_need_a_prefix(name: str) -> None:
    with pytest.raises(UsageError, match=f"{name}=1 needs an output_prefix"):
        CallConfig(**{name: 1})
    config = CallConfig(**{name: 1}, output_prefix="here")
    assert CallConfig.unpack(config.pack()) == config


def test_counters_need_a_trace_and_no_prefix() -> None:
    config = CallConfig(enable_pmu=1)
    packed = config.pack(trace=0)
    assert (packed[8:12], packed[16:20]) == ((1).to_bytes(4, "little"),) * 2
    assert config.pack(trace=2)[8:12] == (2).to_bytes(4, "little")
    for one in (config, CallConfig(enable_pmu=1, output_prefix="here")):
        assert CallConfig.unpack(one.pack()) == one


def test_a_trace_needs_no_prefix() -> None:
    assert CallConfig().pack(trace=3)[8:12] == (3).to_bytes(4, "little")
    config = CallConfig(enable_l2_swimlane=2, output_prefix="here")
    assert CallConfig.unpack(config.pack(trace=0)) == CallConfig(output_prefix="here")
    with pytest.raises(UsageError, match="trace is 5; use an integer from 0 to 4"):
        CallConfig().pack(trace=5)


def test_the_access_log_is_switched_on_in_packed_bytes() -> None:
    assert CallConfig.unpack(with_access_log(CallConfig(output_prefix="p").pack())) == CallConfig(
        enable_dep_gen=1, output_prefix="p"
    )


def test_the_path_of_a_dump_ends_with_a_zero() -> None:
    packed = CallConfig().pack()
    assert with_dump(packed, 3, "x" * 1023).endswith(b"x\0")
    with pytest.raises(UsageError, match="the path of the dump has 1024 bytes"):
        with_dump(packed, 3, "é" * 512)


def test_packed_configurations_can_be_unpacked() -> None:
    for prefix in ("out/é", "x" * 1023):
        config = CallConfig(block_dim=3, aicpu_thread_num=2, output_prefix=prefix)
        assert CallConfig.unpack(config.pack()) == config
