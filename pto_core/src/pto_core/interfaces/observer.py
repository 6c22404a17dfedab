"""The events that observers receive. ``pto_core.plugins.hooks`` declares the hooks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class RunInfo:
    """One run of an orchestration on a device.

    ``graph`` is the name of the orchestration, and ``arguments`` is the number of its arguments.
    ``run`` is the number of the run on this device; the first run is 1.
    """

    backend: str
    runtime: str
    device: int
    graph: str
    arguments: int
    run: int


@dataclass(frozen=True)
class WorkerInfo:
    """A Worker: its path in messages (``"L4"``, ``"L4/host0"``), its level and its process."""

    path: str
    level: int
    process: int


@dataclass(frozen=True)
class CaseInfo:
    """A case of ``pto run``: its name, the folder of ``golden.py``, the backend and the runtime."""

    name: str
    folder: Path
    backend: str
    runtime: str
    device: int
