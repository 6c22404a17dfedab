"""Programs that start with closed standard streams, or close them, work as with /dev/null."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "01_vector"
CLOSED = [(0,), (1,), (2,), (0, 1, 2)]
PTO = [sys.executable, "-m", "pto_core.cli"]

# A child prints, and all descriptors of shared memory are those of other files.
WORKER = """
import os, sys
import numpy as np
import pto_core
from pto_core import InOut, Worker, task

@task
def talk(x: InOut):
    print("spoken" * 1000, flush=True)
    os.write(1, b"spoken" * 1000)
    os.write(2, b"spoken" * 1000)
    x += 1

if __name__ == "__main__":
    worker = Worker(level=3, num_sub_workers=2, start_method={start!r})
    {close_later}
    array = worker.shared_array(1 << 16, "uint8")
    with worker:
        for _ in range(3):
            with worker.session() as session:
                session.submit(talk, array)
    for number in range(3):
        assert not os.readlink(f"/proc/self/fd/{{number}}").startswith(("/memfd", "/dev/shm"))
    os._exit(7 if (array == 3).all() else 8)
"""


def closing(descriptors: Sequence[int]) -> Callable[[], None]:
    def close() -> None:
        for one in descriptors:
            os.close(one)

    return close


@pytest.mark.parametrize(
    ("start", "closed"), [*(("fork", closed) for closed in CLOSED), ("spawn", CLOSED[-1])]
)
def test_shared_memory_of_a_program_without_streams_is_not_written(
    tmp_path: Path, start: str, closed: tuple[int, ...]
) -> None:
    program = tmp_path / "program.py"
    program.write_text(WORKER.format(start=start, close_later=""))
    ended = subprocess.run(
        [sys.executable, program], preexec_fn=closing(closed), check=False, timeout=120
    )
    assert ended.returncode == 7


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_streams_that_the_program_closes_later_are_replaced(tmp_path: Path, start: str) -> None:
    program = tmp_path / "program.py"
    later = "os.closerange(0, 3); sys.stdin = sys.stdout = sys.stderr = None"
    program.write_text(WORKER.format(start=start, close_later=later))
    ended = subprocess.run([sys.executable, program], check=False, timeout=120)
    assert ended.returncode == 7


COMMANDS = (
    (["--help"], 0),
    (["no-such-command"], 2),
    (["run", str(EXAMPLE)], 0),
    (["graph", str(EXAMPLE)], 0),
    (["plugins"], 0),
)


@pytest.mark.parametrize("closed", CLOSED)
def test_commands_work_without_streams(closed: tuple[int, ...]) -> None:
    """The last two commands use the same streams as ``run``."""
    for arguments, code in COMMANDS if len(closed) > 1 else COMMANDS[:3]:
        output = {} if 2 in closed else {"stderr": subprocess.PIPE}
        ended = subprocess.run(
            [*PTO, *arguments],
            preexec_fn=closing(closed),
            check=False,
            timeout=120,
            **output,
        )
        assert ended.returncode == code
        assert b"Traceback" not in (ended.stderr or b"")


def test_a_full_standard_error_does_not_fail_a_command() -> None:
    with open("/dev/full", "wb") as full:
        for arguments, code in ((["run", str(EXAMPLE)], 0), (["no-such-command"], 2)):
            ended = subprocess.run(
                [*PTO, *arguments], stdout=subprocess.DEVNULL, stderr=full, check=False, timeout=120
            )
            assert ended.returncode == code


@pytest.mark.parametrize("arguments", [["plugins"], ["config"], ["run", str(EXAMPLE)]])
def test_a_full_standard_output_is_an_error_without_a_traceback(arguments: list[str]) -> None:
    with open("/dev/full", "wb") as full:
        ended = subprocess.run(
            [*PTO, *arguments], stdout=full, stderr=subprocess.PIPE, check=False, timeout=120
        )
    assert ended.returncode == 2
    assert ended.stderr.splitlines()[-1].startswith(b"pto: error: No space left on device")
