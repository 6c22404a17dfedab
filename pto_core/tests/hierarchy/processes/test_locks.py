"""Threads that look after children, end them and fork never wait for each other in a ring."""

from __future__ import annotations

import os
import threading
import time

from pto_core.hierarchy.processes.child_process import ChildProcess
from pto_core.hierarchy.processes.parking import fork_lock

PATIENCE_S = 10


def ended_child() -> ChildProcess:
    pid = os.fork()
    if pid == 0:
        os._exit(3)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    return ChildProcess(0, "L3/sub0", pid)


def test_who_closes_a_descriptor_keeps_nobody_who_holds_the_fork_lock_from_asking() -> None:
    process = ended_child()
    with fork_lock():  # as one that looks after children
        closing = threading.Thread(target=process.poll, daemon=True)
        closing.start()
        deadline = time.monotonic() + PATIENCE_S
        while process.ending is None and time.monotonic() < deadline:
            time.sleep(0.001)
        asking = threading.Thread(target=process.poll, daemon=True)
        asking.start()
        asking.join(PATIENCE_S)
        assert not asking.is_alive()
        assert closing.is_alive(), "it closes the descriptor when nobody forks"
    closing.join(PATIENCE_S)
    assert not closing.is_alive()
    assert process.ending is not None
    assert process.ending.exit_code == 3
    assert process.pidfd == -1
