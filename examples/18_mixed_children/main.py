"""Level 4: a local and a remote Worker sum the rows of a matrix, and a SUB child adds the sums.

The other host is an agent on this machine, reached over the loopback interface.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from pto_core import In, InOut, Worker, task
from pto_core.published import (
    CallableHandle,
    CallConfig,
    Orchestrator,
    TaskArgs,
    TaskArgsView,
    TensorArgType,
)

BLOCKS, ROWS, COLUMNS = 8, 16, 4096


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


def sum_rows(args: TaskArgsView) -> None:
    """Sum each row of a block; runs in a SUB child of either host."""
    block, sums, where = args.tensors
    sums.numpy()[:] = block.numpy().sum(axis=1)
    where.numpy()[0] = os.getsid(0)  # the session id shows the host: the agent has its own session


def on_a_host(leaf: CallableHandle) -> Callable[..., None]:
    """Return the graph function of a host."""

    def sum_block(orch: Orchestrator, args: TaskArgsView, config: CallConfig) -> None:
        inner = TaskArgs()
        inner.add_tensor(args.tensor(0), TensorArgType.INPUT)
        inner.add_tensor(args.tensor(1), TensorArgType.OUTPUT_EXISTING)
        inner.add_tensor(args.tensor(2), TensorArgType.OUTPUT_EXISTING)
        orch.submit_sub(leaf, inner)

    return sum_block


@task
def add_sums(sums: In, total: InOut) -> None:
    """Add the sums of all blocks; runs in the SUB child of the Worker of level 4."""
    total[0] += sums.sum()


def main() -> None:
    """Sum a matrix, and print where its blocks were summed."""
    with agent() as (address, agent_id), Worker(level=4, num_sub_workers=1) as w4:
        hosts = [
            Worker(level=3, num_sub_workers=1),
            Worker(level=3, num_sub_workers=1, host=address),
        ]
        steps = [w4.register(on_a_host(host.register(sum_rows))) for host in hosts]
        children = [w4.add_worker(host) for host in hosts]
        matrix = w4.shared_array((BLOCKS, ROWS, COLUMNS))
        sums, where = w4.shared_array((BLOCKS, ROWS)), w4.shared_array((BLOCKS, 1), "int64")
        total = w4.shared_array(1)
        matrix[:] = np.arange(BLOCKS)[:, None, None]

        with w4.session() as s:
            for index in range(BLOCKS):
                host = index % len(hosts)
                s.submit(
                    steps[host], matrix[index], sums[index], where[index], worker=children[host]
                )
            s.submit(add_sums, sums, total)  # waits for all blocks, because it reads their sums
        print("total is right:", total[0] == matrix.sum(dtype=np.float64))
        far = int((where == agent_id).sum())
        print(f"blocks on this host: {BLOCKS - far}, on the other host: {far}")


if __name__ == "__main__":
    main()
