"""The job that the parent sends to the child: which cases to run, and how to run them."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote


@dataclass(frozen=True)
class Job:
    """The cases to run. ``settings`` come from options; ``set_`` lists the texts of ``--set``.

    ``only`` lists the remaining cases after an earlier child died. If it is None, ``case`` and
    ``every`` select the cases. A ``seed`` makes the run deterministic. With ``seeds``, each case
    runs with the seeds from 0 to ``seeds`` - 1, until one of the runs fails. With ``log_folder``,
    the access log of each case is saved there as ``CASE.npz``. ``explain``: run a wrong case once
    more to find the task that wrote the first wrong element.
    ``trace`` is the level of the trace of each run. ``stats`` writes the counters of the runtime.
    ``flight_recorder`` keeps the last records of a run that fails. The files are in the folder
    ``out``. ``kernels``: trace the runs to report the times of each kernel.
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
    log_folder: Path | None = None
    explain: bool = True
    trace: int = 0
    stats: bool = False
    flight_recorder: bool = False
    kernels: bool = False
    out: Path | None = None

    def to_json(self) -> str:
        """Return the job as one line of JSON."""
        return json.dumps(asdict(self), default=str)

    def file_prefix(self, case: str) -> Path | None:
        """Return the start of the names of the files of a case; None if it writes no files."""
        return None if self.out is None else self.out / quote(case, safe=" ")

    def command(self, case: str, seed: int) -> str:
        """Return the ``pto run`` command that runs one case of this job with one seed."""
        command = ["pto", "run", "-k", str(self.kernel_config.parent), "-g", str(self.golden)]
        options = {"backend": "-p", "runtime": "-r", "device": "-d"}
        for key, option in options.items():
            if key in self.settings:
                command += [option, str(self.settings[key])]
        for text in self.set_:
            command += ["--set", text]
        if self.skip_golden:
            command.append("--skip-golden")
        return shlex.join([*command, "--case", case, "--seed", str(seed)])

    @staticmethod
    def from_json(text: str) -> Job:
        """Create a job from its JSON text."""
        data = json.loads(text)
        for name in ("golden", "kernel_config"):
            data[name] = Path(data[name])
        folder = data["log_folder"]
        data["log_folder"] = None if folder is None else Path(folder)
        data["out"] = None if data["out"] is None else Path(data["out"])
        data["set_"] = tuple(data["set_"])
        data["only"] = None if data["only"] is None else tuple(data["only"])
        return Job(**data)
