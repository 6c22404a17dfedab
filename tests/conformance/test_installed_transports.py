"""The kit, run for every installed transport."""

from __future__ import annotations

import re

from pto_core import plugins
from pto_devkit import TransportContract

TRANSPORTS = [record.name for record in plugins.transports() if plugins.inspect(record).health.ok]

for transport in TRANSPORTS:
    name = "Test" + "".join(word.title() for word in re.findall(r"[a-z0-9]+", transport))
    globals()[name] = type(name, (TransportContract,), {"transport": transport})


def test_there_is_a_transport() -> None:
    assert TRANSPORTS
