"""A group of processes: none of them outlives the group, whenever the group ends."""

from __future__ import annotations

import os
import signal
import subprocess
import threading

import pytest

from pto_core.toolchain.children import ProcessGroup

PATIENCE_S = 20


def test_a_closed_group_accepts_no_process() -> None:
    with ProcessGroup() as group:
        unreaped = group.start(["sleep", "300"])
        group.close()
        with pytest.raises(ProcessLookupError, match="closed"):
            group.start(["sleep", "300"])
    assert unreaped.wait(PATIENCE_S) == -signal.SIGKILL


def test_a_child_that_starts_while_the_group_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    group = ProcessGroup()
    under_way, ends = threading.Event(), threading.Event()
    started: list[subprocess.Popen[bytes]] = []
    popen = subprocess.Popen

    def late(*arguments, **options):
        under_way.set()
        ends.wait(0.3)  # the group ends in this period, before the process starts
        return popen(*arguments, **options)

    started.append(group.start(["sleep", "300"]))
    monkeypatch.setattr(subprocess, "Popen", late)
    starter = threading.Thread(target=lambda: started.append(group.start(["sleep", "300"])))
    starter.start()
    assert under_way.wait(PATIENCE_S)
    group.close()
    ends.set()
    starter.join(PATIENCE_S)
    assert len(started) == 2
    try:
        assert [child.wait(PATIENCE_S) for child in started] == [-signal.SIGKILL] * 2
    finally:
        for child in started:
            if child.poll() is None:
                os.kill(child.pid, signal.SIGKILL)
                child.wait()
