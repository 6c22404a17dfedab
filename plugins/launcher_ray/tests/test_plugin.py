"""The plugin without a cluster: what it reports without Ray, and how it counts resources."""

from __future__ import annotations

import subprocess
import sys

import pytest

from pto_launcher_ray.resources import Node, actor_options, amounts, capacity

WITHOUT_RAY = """
import sys
sys.modules["ray"] = None  # as if Ray were not installed
from pto_core.errors import PluginUnavailableError
from pto_core.plugins import load_launcher
from pto_launcher_ray import plugin
print(plugin.health().reason)
try:
    load_launcher("ray")
except PluginUnavailableError as error:
    print(error)
"""

SMALL = Node("a" * 16, "10.0.0.1", {"CPU": 4, "node:10.0.0.1": 1, "object_store_memory": 8})
LARGE = Node("b" * 16, "10.0.0.2", {"CPU": 8, "NPU": 4, "memory": 1e9})


def test_without_ray_the_error_names_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_RAY], capture_output=True, text=True, check=True
    )
    reason, error = done.stdout.splitlines()
    assert reason == "Ray is not installed"
    assert "Ray is not installed" in error
    assert "pip install 'ray>=2.60'" in error


@pytest.mark.parametrize(
    ("need", "fitting"),
    [
        ({"NPU": 2}, 2),
        ({"NPU": 2, "CPU": 5}, 1),
        ({"CPU": 4}, 3),
        ({"CPU": 0.1}, 120),
        ({"TPU": 1}, 0),
        ({"TPU": 0, "NPU": 4}, 1),
        ({"memory": 2e9}, 0),
    ],
)
def test_an_agent_fits_on_a_node_with_all_its_resources(
    need: dict[str, float], fitting: int
) -> None:
    assert capacity([SMALL, LARGE], [], need) == fitting


def test_agents_keep_their_resources_and_a_lost_node_has_none() -> None:
    used = [(LARGE.id, {"NPU": 3.0}), (SMALL.id, {"CPU": 4.0}), ("lost", {"NPU": 1.0})]
    assert capacity([SMALL, LARGE], used, {"NPU": 1}) == 1
    assert capacity([SMALL, LARGE], used, {"CPU": 4}) == 2
    assert capacity([LARGE], [*used, (LARGE.id, {"NPU": 3.0})], {"NPU": 1}) == 0
    assert capacity([], [], {"CPU": 1}) == capacity([], [], {}) == 0
    assert capacity([SMALL], [], {}) > 1 << 20


def test_an_actor_reserves_the_named_resources_and_no_processor() -> None:
    assert actor_options({}) == {"num_cpus": 0, "resources": {}}
    assert actor_options({"CPU": 2, "GPU": 1, "memory": 1e9, "NPU": 0.5}) == {
        "num_cpus": 2,
        "num_gpus": 1,
        "memory": 1_000_000_000,
        "resources": {"NPU": 0.5},
    }


def test_texts_leave_out_resources_that_ray_adds() -> None:
    assert str(SMALL) == "10.0.0.1 (node aaaaaaaa): CPU=4"
    assert str(LARGE) == "10.0.0.2 (node bbbbbbbb): CPU=8, NPU=4, memory=0.9313 GiB"
    assert amounts({}) == "no resources"
    assert amounts({"NPU": 1234567, "memory": 2**40}) == "NPU=1,234,567, memory=1,024 GiB"
