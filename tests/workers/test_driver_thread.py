"""The driver's own thread, which calls hooks in Python while the program does something else."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

LIMIT_S = 60

# The driver's own thread is inside look(), in Python, and wants the role while the program has it.
CONTENDED = """
import threading, time
import numpy as np
from pto_core import Worker, InOut, task

@task
def nap(x: InOut) -> None:
    time.sleep(0.5)

is_polling, has_role, is_done = threading.Event(), threading.Event(), threading.Event()
main = threading.current_thread()

def policy(candidates, preferred):
    if is_polling.is_set() and not has_role.is_set():
        has_role.set()
        time.sleep(0.2)  # with the role, without the GIL
    return candidates[0][0]

with Worker(3, num_sub_workers=2, engine="{engine}", policy=policy) as worker:
    worker.init()
    hooks = worker._node.children.driver.hooks
    poll = hooks.poll

    def poll_and_wait():
        poll()
        if threading.current_thread() is not main and not is_done.is_set():
            frame = [object() for _ in range(100)]
            is_polling.set()
            has_role.wait(20)
            for _ in range(3):
                worker._node.children.driver.add_cause(b"one")
            assert len(frame) == 100
            is_done.set()

    hooks.poll = poll_and_wait
    first, second = worker.shared_array(4), worker.shared_array(4)
    with worker.session() as s:
        s.submit(nap, first)
        assert is_polling.wait(20)
        s.submit(nap, second).wait()
        assert is_done.wait(20)
print("whole")
"""


# Invariant: The Python thread state of the driver's own thread lives as long as the thread, so a
# hook on it may wait for the driver.
@pytest.mark.parametrize("engine", ["native", "reference"])
def test_a_hook_on_the_drivers_thread_may_wait_for_the_driver(engine: str) -> None:
    program = textwrap.dedent(CONTENDED.replace("{engine}", engine))
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", program],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert (done.returncode, done.stdout) == (0, "whole\n"), done.stderr
