"""Events in the children of a Worker have its format and configuration; printed lines stay."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import structlog

from pto_core import Worker, log


def report() -> None:
    log.get("child").warning("compiler is slow", seconds=3)
    log.get("child").error("compiler failed", seconds=4)


def run(**settings: Any) -> None:
    with Worker(3, num_sub_workers=1, **settings) as worker:
        handle = worker.register(report)
        worker.run(lambda orch, args, config: orch.submit_sub(handle))


@pytest.fixture(autouse=True)
def restored() -> Any:
    yield
    structlog.reset_defaults()
    log.configure({"log_level": "warn", "log_format": "text"})


@pytest.mark.parametrize("start_method", ["fork", "spawn"])
def test_children_have_the_format_and_the_level(
    start_method: str, capfd: pytest.CaptureFixture[str]
) -> None:
    run(start_method=start_method, log_format="json", log_level="error")
    (record,) = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
    found = (record["event"], record["logger"], record["seconds"])
    assert found == ("compiler failed", "child", 4)


def test_forked_children_inherit_the_configuration_of_the_program(
    capfd: pytest.CaptureFixture[str],
) -> None:
    structlog.configure(
        [structlog.contextvars.merge_contextvars, lambda *event: "MINE " + event[2]["request"]],
        logger_factory=structlog.PrintLoggerFactory(),
    )
    with structlog.contextvars.bound_contextvars(request="r7"):
        run()
    assert "MINE r7" in capfd.readouterr().out


CRASH = """
import os
from pto_core import Worker, task

@task
def crash():
    print("before the crash")
    os._exit(1)

with Worker(level=3, num_sub_workers=1, start_method="{start_method}") as worker:
    with worker.session() as s:
        s.submit(crash).exception()
"""


@pytest.mark.parametrize("start_method", ["fork", "spawn"])
def test_a_crash_loses_no_printed_line(start_method: str, tmp_path: Path) -> None:
    (tmp_path / "crash.py").write_text(CRASH.format(start_method=start_method))
    done = subprocess.run(
        [sys.executable, "crash.py"],
        cwd=tmp_path,
        env={name: text for name, text in os.environ.items() if name != "PYTHONUNBUFFERED"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.stdout, done.stderr) == ("before the crash\n", "")
