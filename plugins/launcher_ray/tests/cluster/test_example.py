"""The example for several hosts runs on the nodes of a Ray cluster, without a change."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.ray

EXAMPLE = Path(__file__).parents[4] / "examples" / "20_laptop_to_cluster" / "main.py"


def test_the_example_has_each_host_on_a_node_of_its_own(other_cluster: Any) -> None:
    for _ in range(3):
        other_cluster.add()
    settings = {
        "RAY_ADDRESS": other_cluster.address,
        "PTO_LAUNCHER": "ray",
        "PTO_HOSTS": "4",
        "PTO_HOST_RESOURCES": "CPU=1",  # each node has one
    }
    done = subprocess.run(
        [sys.executable, str(EXAMPLE)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **settings},
    )
    assert done.returncode == 0, done.stderr
    first, *hosts = done.stdout.splitlines()
    assert first == "result is right: True"
    blocks = [int(count) for line in hosts for count in re.findall(r": (\d+) of 16 blocks", line)]
    assert len(blocks) == 4
    assert sum(blocks) == 16
