"""Run a Ray cluster on this machine until the end of the standard input, or SIGTERM.

Each line of the input is an order as JSON, and gets one line as its answer. The first line of the
output is the address. Ray writes its files to the folder RAY_TMPDIR, which is removed at the end.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from typing import Any

import psutil
from ray.cluster_utils import Cluster

NODE = {"num_cpus": 1, "object_store_memory": 80_000_000}
# A node that was killed is dead after about 2 s, instead of 15 s.
CHECKS = {
    "health_check_initial_delay_ms": 500,
    "health_check_period_ms": 500,
    "health_check_timeout_ms": 2000,
    "health_check_failure_threshold": 3,
}


def main(answer: Callable[[Any], None]) -> None:
    """Start a head, and carry out orders."""
    cluster = Cluster(shutdown_at_exit=False)
    nodes: dict[str, list[psutil.Process]] = {}
    begun: set[psutil.Process] = set()

    def add(**options: Any) -> str:
        node = cluster.add_node(**options, **NODE)
        nodes[node.node_id] = sorted(set(psutil.Process().children()) - begun, key=lambda p: p.pid)
        begun.update(nodes[node.node_id])
        return str(node.node_id)

    try:
        add(include_dashboard=False, _system_config=CHECKS)
        answer(cluster.address)
        for line in sys.stdin:
            ((order, value),) = json.loads(line).items()
            if order == "add":
                answer(add(resources=value))
            elif order == "find":
                above = set(psutil.Process(value).parents())
                (found,) = (node for node, processes in nodes.items() if above & set(processes))
                answer(found)
            else:
                kill(nodes.pop(value) if order == "kill" else list(begun))
                answer(None)
    finally:
        kill(psutil.Process().children())
        shutil.rmtree(os.environ["RAY_TMPDIR"], ignore_errors=True)


def kill(processes: list[psutil.Process]) -> None:
    """Kill processes with all their descendants, and wait for their ends."""
    doomed = list(processes)
    for process in processes:
        if process.is_running():
            doomed += process.children(recursive=True)
    for process in doomed:
        if process.is_running():
            process.kill()
    psutil.wait_procs(doomed, timeout=10)


if __name__ == "__main__":
    output = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what Ray prints is no answer
    signal.signal(
        signal.SIGTERM, lambda *_: sys.exit(143)
    )  # a stage that is stopped leaves nothing
    main(lambda value: print(json.dumps(value), file=output, flush=True))
