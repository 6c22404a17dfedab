"""What observers are told about; the hooks themselves are in ``pto_core.plugins.hooks``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class RunInfo:
    """One run of a graph on a device.

    ``graph`` is the name of the orchestration, ``arguments`` how many it was given, ``run`` counts
    the runs of the device from 1.
    """

    backend: str
    runtime: str
    device: int
    graph: str
    arguments: int
    run: int


@dataclass(frozen=True)
class CaseInfo:
    """One case of ``pto run``: its name, the folder of its ``golden.py``, and what it runs on."""

    name: str
    folder: Path
    backend: str
    runtime: str
    device: int
