"""What the parent asks of the child that runs cases."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Job:
    """Cases to run, and how. ``settings`` are arguments, ``set_`` the ``--set`` texts.

    ``only`` lists the cases that are left when an earlier child died; None lets ``case`` and
    ``every`` choose. A ``seed`` makes the run deterministic.
    """

    golden: Path
    kernel_config: Path
    case: str | None = None
    every: bool = False
    only: tuple[str, ...] | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    set_: tuple[str, ...] = ()
    repeat: int = 1
    skip_golden: bool = False
    seed: int | None = None
    list_only: bool = False

    def to_json(self) -> str:
        """Give one line of JSON."""
        return json.dumps(asdict(self), default=str)

    @staticmethod
    def from_json(text: str) -> Job:
        """Rebuild a job."""
        data = json.loads(text)
        for name in ("golden", "kernel_config"):
            data[name] = Path(data[name])
        data["set_"] = tuple(data["set_"])
        data["only"] = None if data["only"] is None else tuple(data["only"])
        return Job(**data)
