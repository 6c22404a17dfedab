"""The kit, run for every installed backend, and for every installed pair of backend and runtime."""

# Invariant of this file: After an error, an abort or a failed kernel the device runs the next
# graph, unless it is lost.

from __future__ import annotations

import re

from pto_core import plugins
from pto_core.plugins import PluginRecord
from pto_devkit import BackendContract, RuntimeContract


def healthy(records: list[PluginRecord]) -> list[str]:
    return [record.name for record in records if plugins.inspect(record).health.ok]


def class_name(*words: str) -> str:
    return "Test" + "".join(word.title() for name in words for word in re.findall(r"\w+", name))


BACKENDS = healthy(plugins.installed("backend"))
RUNTIMES = healthy(plugins.installed("runtime"))

for backend in BACKENDS:
    name = class_name(backend)
    globals()[name] = type(name, (BackendContract,), {"backend": backend})
    for runtime in RUNTIMES:
        name = class_name(runtime, "on", backend)
        globals()[name] = type(name, (RuntimeContract,), {"runtime": runtime, "backend": backend})


def test_there_is_a_pair() -> None:
    assert BACKENDS
    assert RUNTIMES
