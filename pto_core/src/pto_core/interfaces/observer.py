"""The events that observers receive. The hooks are in ``pto_core.plugins.hooks``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class RunInfo:
    """One run of an orchestration on a device.

    ``graph`` is the name of the orchestration, ``arguments`` the number of its arguments. ``run``
    counts the runs of the device from 1.
    """

    backend: str
    runtime: str
    device: int
    graph: str
    arguments: int
    run: int


@dataclass(frozen=True)
class CaseInfo:
    """One case of ``pto run``: its name, the folder of ``golden.py``, backend and runtime."""

    name: str
    folder: Path
    backend: str
    runtime: str
    device: int
