"""The job that the parent sends to the child: the cases to run, their files and the options."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from pto_core.cases.report import from_plain, to_plain
from pto_core.errors import UsageError
from pto_core.errors.values import suggestion


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
    ``out``. ``dump``: the tasks whose arrays are written, or None;
    ``dump_level`` is that of ``enable_dump_tensor``. ``kernels``: trace the runs to report the
    times of each kernel. ``record``: the file to which the run is recorded. ``recorded``: the
    record that is run again.
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
    dump: str | None = None
    dump_level: int = 3
    kernels: bool = False
    out: Path | None = None
    record: Path | None = None
    recorded: Path | None = None

    def to_json(self) -> str:
        """Return the job as one line of JSON."""
        return json.dumps(to_plain(self))

    def file_prefix(self, case: str) -> Path | None:
        """Return the start of the names of the files of a case; None if it writes no files."""
        return None if self.out is None else self.out / quote(case, safe=" ")

    def command(self, case: str, seed: int) -> str:
        """Return the ``pto run`` command that runs one case of this job with one seed."""
        command = ["pto", "run", "-k", str(self.kernel_config.parent), "-g", str(self.golden)]
        if self.recorded is not None:
            command = ["pto", "run", str(self.recorded)]
        options = {"backend": "-p", "runtime": "-r", "device": "-d"}
        for key, option in options.items():
            if key in self.settings:
                command += [option, str(self.settings[key])]
        for text in self.set_:
            command += ["--set", text]
        if self.skip_golden:
            command.append("--skip-golden")
        if self.recorded is None:
            command += ["--case", case]
        return shlex.join([*command, "--seed", str(seed)])

    @staticmethod
    def from_json(text: str) -> Job:
        """Create a job from its JSON text."""
        job: Job = from_plain(Job, json.loads(text))
        return job


RECORD_SUFFIX = ".ptorecord"
GOLDEN = "golden.py"
KERNEL_CONFIG = "kernel_config.py"


@dataclass(frozen=True)
class CaseFiles:
    """The absolute paths of a case's ``golden.py`` and ``kernel_config.py``."""

    golden: Path
    kernel_config: Path

    @property
    def folder(self) -> Path:
        """The folder that identifies the case to the user."""
        return self.golden.parent


def locate(
    folder: Path | None = None, kernels: Path | None = None, golden: Path | None = None
) -> CaseFiles:
    """Find the files of a case from its folder, or from its kernels folder and its golden file.

    The folder contains ``golden.py`` and either ``kernels/kernel_config.py`` or
    ``kernel_config.py``. The parameters ``kernels`` and ``golden`` override these locations. Raises
    a UsageError that names the missing file.
    """
    if folder is None and (kernels is None or golden is None):
        missing = "-k KERNELS" if kernels is None else "-g GOLDEN"
        raise UsageError(
            f"no case given: expected a folder with {GOLDEN} and kernels/{KERNEL_CONFIG}, "
            f"or -k KERNELS -g GOLDEN ({missing} is missing)",
            name="case",
        )
    if folder is not None and not folder.is_dir():
        raise _is_a_file(folder) if folder.exists() else _missing("case folder", folder)
    return CaseFiles(
        _golden_file(golden if golden is not None else _in(folder, GOLDEN)),
        _kernel_config(kernels) if kernels is not None else _kernel_config_in(_in(folder)),
    )


def _in(folder: Path | None, *names: str) -> Path:
    assert folder is not None, "checked by the caller"
    return folder.joinpath(*names)


def _golden_file(path: Path) -> Path:
    path = path / GOLDEN if path.is_dir() else path
    if not path.is_file():
        raise _missing("golden file", path)
    return path.absolute()


def _kernel_config(path: Path) -> Path:
    path = path if path.is_file() else path / KERNEL_CONFIG
    if not path.is_file():
        raise _missing("kernel configuration", path)
    return path.absolute()


def _kernel_config_in(folder: Path) -> Path:
    for path in (folder / "kernels" / KERNEL_CONFIG, folder / KERNEL_CONFIG):
        if path.is_file():
            return path.absolute()
    raise _missing("kernel configuration", folder / "kernels" / KERNEL_CONFIG)


def _is_a_file(path: Path) -> UsageError:
    better = f"pass its folder {path.parent}" if path.name == GOLDEN else "pass the case's folder"
    return UsageError(
        f"the case {path} is a file, not a folder; {better}",
        name="case folder",
        value=str(path),
        expected="a folder",
    )


def _missing(what: str, path: Path) -> UsageError:
    """Return the error for a missing path; it lists the content of the nearest existing folder."""
    existing = path.parent
    while not existing.is_dir() and existing != existing.parent:
        existing = existing.parent
    wanted = path.relative_to(existing).parts[0]
    names = sorted(entry.name for entry in existing.iterdir()) if existing.is_dir() else []
    hint = suggestion(wanted, names)
    if not hint:
        shown = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
        hint = f"; {existing} has {shown or 'no files'}"
    return UsageError(
        f"the {what} {path} does not exist{hint}", name=what, value=str(path), expected="a path"
    )
