"""The kit, run for every installed transport between processes of one host."""

from __future__ import annotations

import re

from pto_core import plugins
from pto_devkit import TransportContract

INSPECTED = map(plugins.inspect, plugins.installed("transport"))
TRANSPORTS = [each.record.name for each in INSPECTED if each.health.ok and each.reach == "local"]

for transport in TRANSPORTS:
    name = "Test" + "".join(word.title() for word in re.findall(r"[a-z0-9]+", transport))
    globals()[name] = type(name, (TransportContract,), {"transport": transport})


def test_there_is_a_transport() -> None:
    assert TRANSPORTS
