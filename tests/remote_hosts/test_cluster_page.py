"""The mistakes in docs/cluster.md have the messages that the page shows."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from pto_core import Hosts, Worker
from pto_core.errors import ChildStartError

PAGE = Path(__file__).parents[2] / "docs" / "cluster.md"


def message(pod: Worker) -> str:
    """Return the message of the failed start, with the words and numbers of the page."""
    with pod, pytest.raises(ChildStartError) as info:
        pod.init()
    text = re.sub(r"process \d+", "process 5652", f"ChildStartError: {info.value}")
    text = re.sub(r"\S+\.step uses", "step uses", text)
    return text.replace("sh: 1: pto: not found", "bash: line 1: pto: command not found")


def shown() -> list[str]:
    """Return the messages of the page, in its order."""
    section = PAGE.read_text().partition("## If it does not start")[2]
    return [" ".join(one.split()) for one in re.findall(r"```text\n(.*?)```", section, re.DOTALL)]


def on_list(num: int, hosts: str) -> Worker:
    pod = Worker(level=4)
    pod.add_worker(
        Worker(
            level=3,
            hosts=Hosts.on("command", num=num),
            host_list=hosts,
            host_command="sh -c {command}",
        )
    )
    return pod


def test_a_host_without_pto(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    assert message(on_list(1, "host1")) == shown()[0]


def test_a_host_without_a_module_of_the_program(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "mylib.py").write_text("def triple(x):\n    return 3 * x\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import mylib

    def step(orch: Any, args: Any, config: Any) -> None:
        args.tensor(0)[:] = mylib.triple(args.tensor(0))

    pod = Worker(level=4)
    pod.add_worker(Worker(level=3, hosts=Hosts.on("local", num=1)))
    pod.register(step)
    assert message(pod) == shown()[1]


def test_more_hosts_than_the_list_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", os.path.dirname(sys.executable), prepend=os.pathsep)
    assert message(on_list(3, "host1, host2")) == shown()[2]
