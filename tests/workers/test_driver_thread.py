"""The driver's own thread calls hooks in Python while the program does other work."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

LIMIT_S = 60

# A program in which the driver's own thread is inside poll(), in Python, and waits for the driver
# role, which the main thread owns.
CONTENDED = """
import threading, time
from pto_core import In, InOut, Worker, task
from pto_core.worker.child_group import DriverHooks
from thread_states import await_blocked

@task
def wait(is_open: In, x: InOut) -> None:
    while not is_open[0]:
        time.sleep(0.001)

is_polling, has_role, is_asking, is_done = (threading.Event() for _ in range(4))
main = threading.current_thread()
asking = []

def policy(candidates, preferred):
    if is_polling.is_set() and not has_role.is_set():
        has_role.set()
        assert is_asking.wait(20)
        await_blocked(*asking)  # this thread has the role, and releases the GIL at times
    return candidates[0][0]

poll = DriverHooks.poll

def poll_and_ask(hooks):
    poll(hooks)
    if threading.current_thread() is not main and not is_done.is_set():
        frame = [object() for _ in range(100)]
        asking.append(threading.get_native_id())
        is_polling.set()
        assert has_role.wait(20)
        is_asking.set()
        for _ in range(3):
            worker.statistics()
        assert len(frame) == 100
        is_done.set()

DriverHooks.poll = poll_and_ask

with Worker(3, num_sub_workers=2, policy=policy) as worker:
    is_open = worker.shared_array(1, "int64")
    first, second = worker.shared_array(4), worker.shared_array(4)
    with worker.session() as s:
        s.submit(wait, is_open, first)
        assert is_polling.wait(20)
        s.submit(wait, is_open, second)
        assert is_done.wait(20)
        is_open[:] = 1
print("whole")
"""


# Invariant: The Python thread state of the driver's own thread lives as long as the thread, so a
# hook on it may wait for the driver.
def test_a_hook_on_the_drivers_thread_may_wait_for_the_driver() -> None:
    program = textwrap.dedent(CONTENDED)
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", program],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        cwd=Path(__file__).parent,  # the program imports thread_states from here
    )
    assert (done.returncode, done.stdout) == (0, "whole\n"), done.stderr
