"""Run a case, and keep the run in one file: program, inputs, settings, outputs and versions.

CASE is a folder with golden.py and kernels/kernel_config.py, as for `pto run`. `pto run FILE` runs
the file again on any machine and version, and shows first what differs from the recorded run. The
exit codes are those of `pto run`; a run that fails is recorded too.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from pto_core.cases.job import RECORD_SUFFIX, Job, locate
from pto_core.cases.supervisor import supervise
from pto_core.cli.case_display import make_display
from pto_core.cli.run import SEED_HELP, add_case_arguments, natural
from pto_core.errors import UnsupportedError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``pto record``."""
    where, place, how = add_case_arguments(parser)
    where.add_argument("--case", metavar="NAME", help="one of ALL_CASES; default: DEFAULT_CASE")
    place.add_argument("--seed", type=natural, metavar="N", help=SEED_HELP)
    how.add_argument("--skip-golden", action="store_true", help="do not compare with the reference")
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="default: CASE.ptorecord in this folder"
    )


def run(namespace: argparse.Namespace) -> int:
    """Run and record the case; return the exit code of the run."""
    if namespace.path is not None and namespace.path.suffix == ".py":
        raise UnsupportedError(
            f"{namespace.path} cannot be recorded: pto does not know the inputs of a program or of "
            "a scene test; record the folder of a case",
            name="case",
            value=str(namespace.path),
        )
    files = locate(namespace.path, namespace.kernels, namespace.golden)
    output = namespace.output or Path(files.folder.name + RECORD_SUFFIX)
    settings = {
        "backend": namespace.platform,
        "runtime": namespace.runtime,
        "device": namespace.device,
        "hazards": namespace.hazards,
        "log_level": namespace.log_level,
    }
    job = Job(
        golden=files.golden,
        kernel_config=files.kernel_config,
        case=namespace.case,
        settings={key: value for key, value in settings.items() if value is not None},
        set_=tuple(namespace.set),
        skip_golden=namespace.skip_golden,
        seed=namespace.seed,
        record=output.absolute(),
    )
    before = _state(output)
    display = make_display(quiet=False, silent=False, verbose=namespace.verbose > 0)
    try:
        (report,) = supervise(job, display, namespace.timeout)
    finally:
        display.close()
    if _state(output) != before:
        print(f"recorded {output}")
    return report.exit_code


def _state(path: Path) -> tuple[int, int] | None:
    return (path.stat().st_ino, path.stat().st_mtime_ns) if path.exists() else None
