"""The tests of an Ascend card: on the fake device, or with ``--card NUMBER`` on a card.

Each result must have the label of the device that was asked for. So the tests fail if there is no
card, and do not pass on another device. docs/ascend.md says how to run them on one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pto_backend_a2a3.core_code import kernel_recipe
from pto_core.config import load
from pto_core.interfaces import abi_include_dir
from pto_core.toolchain import Toolchain

EXAMPLE = Path(__file__).parents[2] / "examples" / "01_vector"
PTO = Path(sys.executable).with_name("pto")
RUNTIMES = ("aicpu_build_graph", "host_build_graph", "tensormap_and_ringbuffer")


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_the_vector_example_runs_on_the_card(card: str, runtime: str) -> None:
    words = ("-p", "a2a3", "-r", runtime, "--all", "--json")
    result = subprocess.run(
        [PTO, "run", EXAMPLE, *words], capture_output=True, text=True, check=False, timeout=300
    )
    assert result.returncode == 0, result.stdout + result.stderr
    cases = json.loads(result.stdout)["cases"]
    assert [case["passed"] for case in cases] == [True, True]
    assert {case["process"]["label"] for case in cases} == {card}


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_variant_keeps_its_contract_on_the_card(card: str, stranger, runtime: str) -> None:
    """Only the variant that builds its graph on the host has a submit path."""
    outcomes = stranger.run_contract("RuntimeContract", runtime=runtime, backend="a2a3")
    assert {test: problem for test, problem in outcomes.items() if problem} == {}
    assert ("test_diamond" in outcomes) == (runtime == "host_build_graph")
    assert "test_device_rules" in outcomes


def test_the_backend_keeps_its_contract_on_the_card(card: str, stranger) -> None:
    outcomes = stranger.run_contract("BackendContract", backend="a2a3")
    assert {test: problem for test, problem in outcomes.items() if problem} == {}
    assert {"test_each_task_runs_once", "test_lost_device", "test_topology"} <= outcomes.keys()
    assert not {"test_callbacks", "test_red_zones", "test_seeds_differ"} & outcomes.keys()


def test_without_a_card_the_tests_fail_and_say_so(tmp_path: Path) -> None:
    test = f"{__file__}::test_the_vector_example_runs_on_the_card[host_build_graph]"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", test, "--card"]
    environment = {
        **os.environ,
        "PTO_A2A3_LIBRARY_FOLDER": str(tmp_path),
        "ASCEND_RT_VISIBLE_DEVICES": "4,6",
    }
    done, refused = (
        subprocess.run(
            [*command, number], env=environment, capture_output=True, text=True, check=False
        )
        for number in ("1", "2")
    )
    assert "'2' is no number of a device; ASCEND_RT_VISIBLE_DEVICES is '4,6'" in refused.stderr
    assert done.returncode == 1
    tests, _, card = done.stdout.partition("card 6 (--card)")
    assert "libacl_rt.so of the CANN toolkit cannot be loaded" in tests
    assert card.split()[card.split().index("FAILED") :][:2] == ["FAILED", "libraries"]
    assert "kernels with tiles" in card


@pytest.mark.needs_tiles
def test_a_kernel_with_tiles_compiles_for_the_card(card: str, tmp_path: Path) -> None:
    source = tmp_path / "tiles.cpp"
    source.write_text(
        '#include "pto/abi/kernel.h"\n#include <pto/pto-inst.hpp>\n'
        'extern "C" __aicore__ void kernel_entry(__gm__ int64_t* args) {}\n'
    )
    toolchain = Toolchain(load(None))
    assert os.environ["PTO_ISA_ROOT"]
    for core_type in ("aic", "aiv"):
        recipe = kernel_recipe(core_type)
        assert toolchain.build_kernel(source, core_type, recipe, (abi_include_dir(),)).is_file()
