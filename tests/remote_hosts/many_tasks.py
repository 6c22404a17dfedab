"""The memory of all processes while many tasks run on another host.

usage: many_tasks.py TASKS [STEPS]

It prints the resident memory of each process after each step. `docs/soak.md` records runs.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.append(str(Path(__file__).parents[1] / "links"))

import psutil
from remote_hosts import Agent, running_agent, task_args

from pto_core import TensorArgType, Worker
from pto_transport_zmq.link.loading import load_links
from pto_transport_zmq.remote.keys import new_keys

WINDOW = 1000
"""The number of tasks that are submitted before the program waits for them."""
# bytes of the arrays; all are small enough to travel in the messages of their tasks
SIZES = (16, 64, 4096)


def count(orch: Any, args: Any, config: Any) -> None:
    """Add one to the first element."""
    args.tensor(0)[0] += 1


def memory_after_steps(
    agent: Agent, tasks: int, steps: int
) -> Iterator[tuple[int, dict[str, int]]]:
    """Run tasks in a session; yield the number of tasks and bytes by process after each step."""
    with Worker(level=4) as worker:
        step = worker.register(count)
        there = worker.add_worker(agent.worker(num_sub_workers=0))
        arrays = [worker.shared_array((size // 8,), "int64") for size in SIZES]
        worker.init()
        (relay,) = [one for one in psutil.Process().children() if one != agent.main()]
        gateway, remote = sorted(agent.processes(), key=lambda one: one.create_time())
        processes = {
            "parent": psutil.Process(),
            "relay": relay,
            "agent": agent.server(),
            "gateway": gateway,
            "Worker": remote,
        }

        def graph(orch: Any, args: Any, config: Any) -> None:
            for number in range(WINDOW):
                made = task_args(arrays[number % len(arrays)], out=TensorArgType.INOUT)
                orch.submit_next_level(step, made, worker=there)

        done = 0
        for number in range(1, steps + 1):
            while done < tasks * number // steps:
                worker.run(graph)
                done += WINDOW
            assert sum(int(array[0]) for array in arrays) == done
            yield done, {name: one.memory_info().rss for name, one in processes.items()}


def main() -> None:
    tasks = int(sys.argv[1])
    steps = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    with tempfile.TemporaryDirectory() as name:
        keys = Path(name) / "keys"
        new_keys(keys, load_links("zmq"))
        begin = time.monotonic()
        with running_agent(Path(name), "zmq", keys) as agent:
            for done, used in memory_after_steps(agent, tasks, steps):
                text = ", ".join(f"{one} {value / 2**20:.1f}" for one, value in used.items())
                print(f"{done} tasks in {time.monotonic() - begin:.0f} s; MiB: {text}", flush=True)


if __name__ == "__main__":
    main()
