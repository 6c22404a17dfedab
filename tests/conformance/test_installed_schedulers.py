"""The kit, run for every installed scheduler."""

from __future__ import annotations

from pto_core import plugins
from pto_devkit import SchedulerContract

SCHEDULERS = [
    record.name for record in plugins.installed("scheduler") if plugins.inspect(record).health.ok
]

for scheduler in SCHEDULERS:
    name = "Test" + scheduler.title().replace("_", "")
    globals()[name] = type(name, (SchedulerContract,), {"scheduler": scheduler})


def test_the_schedulers_of_the_core_are_installed() -> None:
    assert {"least_loaded", "near_inputs"} <= set(SCHEDULERS)
