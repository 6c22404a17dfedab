"""Modules of a program on another host: sent with ``ship=``, or compared with the host's."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
from remote_hosts import counted, running_agent, task_args, wait_until

from pto_core import Worker
from pto_core.errors import ChildStartError, ControlError, UsageError

STEPS = """
from shipped_pack.tools import value

def fill(orch, args, config):
    args.tensor(0)[:] = value()
"""


def write_pack(folder: Path, value: int) -> Path:
    pack = folder / "shipped_pack"
    pack.mkdir(parents=True)
    (pack / "__init__.py").write_text("")
    (pack / "steps.py").write_text(STEPS)
    (pack / "tools.py").write_text(f"def value():\n    return {value}\n")
    return folder


def forget_pack() -> None:
    for name in [name for name in sys.modules if name.startswith("shipped_pack")]:
        del sys.modules[name]


def test_modules_are_sent_for_one_session(
    keys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = write_pack(tmp_path / "there", 1), write_pack(tmp_path / "here", 2)
    with monkeypatch.context() as there:
        there.syspath_prepend(old)
        temporary = tmp_path / "temporary"  # a TMPDIR that no other session of this machine uses
        temporary.mkdir()
        there.setenv("TMPDIR", str(temporary))
        starting = running_agent(tmp_path, "zmq", keys)
        agent = starting.__enter__()
    monkeypatch.syspath_prepend(new)
    forget_pack()

    def started(**settings: Any) -> Worker:
        worker = Worker(level=4, on_worker_death="restart")
        worker.add_worker(agent.worker(num_sub_workers=0, remote_lease_s=1, **settings))
        return worker

    try:
        with started() as worker:
            worker.init()
            with pytest.raises(ControlError, match=r"tools, which has other content .* ship="):
                worker.register("shipped_pack.steps:fill")
        with started() as worker:
            worker.register("shipped_pack.steps:fill")
            with pytest.raises(ChildStartError, match=r"tools, which has other content .* ship="):
                worker.init()
        agent.await_no_session()
        with started(ship=["shipped_pack"]) as worker:
            step = worker.register("shipped_pack.steps:fill")
            y = counted(worker, 4)
            worker.run(lambda o, a, c: o.submit_next_level(step, task_args(y), worker=0))
            assert (y == 2).all()
            (folder,) = temporary.glob("pto-modules-*")
            (gateway,) = psutil.Process(agent.process.pid).children()[1:]
            os.kill(gateway.pid, signal.SIGKILL)
            wait_until(lambda: not folder.exists())
        agent.await_no_session()
        wait_until(lambda: not list(temporary.glob("pto-modules-*")))
    finally:
        forget_pack()
        starting.__exit__(None, None, None)


def test_ship_needs_a_host_and_a_list_of_names() -> None:
    with pytest.raises(UsageError, match="ship was passed without host"):
        Worker(level=3, ship=["json"])
    with pytest.raises(UsageError, match="pass a list of the names"):
        Worker(level=3, host="tcp://h:1", ship="json")
