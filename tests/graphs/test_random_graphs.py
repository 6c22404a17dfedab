"""Random graphs in threads mode, in which the machine chooses the order: no edge is violated."""

from __future__ import annotations

import random
import secrets

import pytest

from pto_core import plugins
from pto_devkit import RuntimeSubject
from pto_devkit.ordering import check_random_graphs

RUNTIMES = [record.name for record in plugins.installed("runtime")]
DEVICES, DEVICES_AT_FULL_COUNT = 2, 200
GRAPHS_OF_A_DEVICE = 20


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_random_graphs(runtime: str, request: pytest.FixtureRequest) -> None:
    """Test 40 graphs of 2 seeds, or 4,000 of 200 with --full. A failure names the seed."""
    subject = RuntimeSubject.load(runtime, backend="a2a3sim")
    full = request.config.getoption("full")
    seed = secrets.randbits(32)
    print("seed", seed)
    numbers = random.Random(seed)
    for _ in range(DEVICES_AT_FULL_COUNT if full else DEVICES):
        check_random_graphs(subject, GRAPHS_OF_A_DEVICE, numbers.getrandbits(32))
