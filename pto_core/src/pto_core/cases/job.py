"""What the parent asks of the child that runs cases."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Job:
    """Cases to run, and how. ``settings`` are arguments, ``set_`` the ``--set`` texts.

    ``only`` lists the cases that are left when an earlier child died; None lets ``case`` and
    ``every`` choose. A ``seed`` makes the run deterministic; ``seeds`` runs each case under
    that many, from 0, until one fails.
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
    seeds: int | None = None
    list_only: bool = False

    def to_json(self) -> str:
        """Give one line of JSON."""
        return json.dumps(asdict(self), default=str)

    def command(self, case: str, seed: int) -> str:
        """Write the command that runs one case under one seed as this job does."""
        words = ["pto", "run", "-k", str(self.kernel_config.parent), "-g", str(self.golden)]
        options = {"backend": "-p", "runtime": "-r", "device": "-d"}
        for key, option in options.items():
            if key in self.settings:
                words += [option, str(self.settings[key])]
        for text in self.set_:
            words += ["--set", text]
        if self.skip_golden:
            words.append("--skip-golden")
        return shlex.join([*words, "--case", case, "--seed", str(seed)])

    @staticmethod
    def from_json(text: str) -> Job:
        """Rebuild a job."""
        data = json.loads(text)
        for name in ("golden", "kernel_config"):
            data[name] = Path(data[name])
        data["set_"] = tuple(data["set_"])
        data["only"] = None if data["only"] is None else tuple(data["only"])
        return Job(**data)
