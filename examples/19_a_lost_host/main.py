"""Level 4: a host is lost while it runs a task; its tasks run on the remaining host.

The other host is an agent on this machine, reached over the loopback interface.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from pto_core import Worker
from pto_core.published import CallConfig, Orchestrator, TaskArgsView

ROWS = 6


@contextmanager
def agent() -> Iterator[tuple[str, int]]:
    """Run an agent, which needs no keys for this machine; yield its address and process."""
    command = [sys.executable, "-m", "pto_core.cli", "agent", "serve", "--bind"]
    process = subprocess.Popen(
        [*command, "tcp://127.0.0.1:0"], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        assert process.stdout is not None
        address = process.stdout.readline().split()[-1]  # pto agent: serving at ADDRESS
        yield address, process.pid
    finally:
        process.terminate()
        process.wait()


def double(orch: Orchestrator, args: TaskArgsView, config: CallConfig) -> None:
    """Double a row. On the agent's host, kill the agent before the task ends."""
    row, agent_id = args.tensor(0), int(args.scalar(0))
    row *= 2
    if os.getsid(0) == agent_id:  # this process is in the agent's session
        os.kill(agent_id, signal.SIGKILL)  # from now on, this host is lost
        signal.pause()


def main() -> None:
    """Double each row of a matrix, with one host that is lost."""
    with agent() as (address, agent_id), Worker(level=4, on_worker_death="reroute") as w4:
        step = w4.register(double)
        far = w4.add_worker(Worker(level=3, host=address, remote_lease_s=0.5))
        near = w4.add_worker(Worker(level=3))
        matrix = w4.shared_array((ROWS, 1000))
        matrix[:] = np.arange(1000)
        with w4.session() as s:
            for index in range(ROWS):
                preferred = (far, near)[index % 2]
                s.submit(step, matrix[index], agent_id, worker=preferred, hint=True, retries=1)
        print("lost hosts:", w4.statistics()["deaths"])
        print("all rows are doubled once:", bool((matrix == 2 * np.arange(1000)).all()))


if __name__ == "__main__":
    main()
