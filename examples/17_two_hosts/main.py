"""Level 4: one Worker on this host and one on another host add two vectors together.

The other host is an agent on this machine, reached over the loopback interface with keys.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from pto_core import Worker
from pto_core.published import (
    CallableHandle,
    CallConfig,
    Orchestrator,
    TaskArgs,
    TaskArgsView,
    TensorArgType,
)

ELEMENTS, WORKERS = 1 << 20, 2
PTO = [sys.executable, "-m", "pto_core.cli"]


@contextmanager
def agent_with_keys(folder: Path) -> Iterator[tuple[str, int]]:
    """Make keys in a folder, run an agent with them, and yield its address and process."""
    subprocess.run([*PTO, "keys", "new", folder], check=True, stdout=subprocess.DEVNULL)
    command = [*PTO, "agent", "serve", "--bind", "tcp://127.0.0.1:0", "--keys", str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        assert process.stdout is not None
        address = process.stdout.readline().split()[-1]  # pto agent: serving at ADDRESS
        yield address, process.pid
    finally:
        process.terminate()
        process.wait()


def add(args: TaskArgsView) -> None:
    """Add two vectors; runs in a SUB child."""
    x, y, out, where = args.tensors
    np.add(x.numpy(), y.numpy(), out=out.numpy())
    where.numpy()[0] = os.getsid(0)  # the session id shows the host: the agent has its own session


def halves_of(leaf: CallableHandle) -> Callable[..., None]:
    """Return the graph function of a host, which splits its vectors over its children."""

    def on_a_host(orch: Orchestrator, args: TaskArgsView, cfg: CallConfig) -> None:
        parts = [np.split(args.tensor(i), WORKERS) for i in range(4)]
        for x, y, out, where in zip(*parts, strict=True):
            orch.submit_sub(leaf, arguments(x, y, out, where))

    return on_a_host


def arguments(*tensors: object) -> TaskArgs:
    """Return the arguments of a task that reads two tensors and writes two."""
    made = TaskArgs()
    for tensor in tensors[:2]:
        made.add_tensor(tensor, TensorArgType.INPUT)
    for tensor in tensors[2:]:
        made.add_tensor(tensor, TensorArgType.OUTPUT_EXISTING)
    return made


def main() -> None:
    """Add two vectors on two hosts, and print where each half ran."""
    with (
        tempfile.TemporaryDirectory() as keys,
        agent_with_keys(Path(keys)) as (address, agent),
        Worker(level=4) as w4,
    ):
        near = Worker(level=3, num_sub_workers=WORKERS)
        far = Worker(level=3, num_sub_workers=WORKERS, host=address, keys=keys)
        steps = [w4.register(halves_of(host.register(add))) for host in (near, far)]
        hosts = [w4.add_worker(near), w4.add_worker(far)]
        x, y, out = (w4.shared_array((2, ELEMENTS // 2)) for _ in range(3))
        where = w4.shared_array((2, WORKERS), "int64")
        x[:] = np.arange(ELEMENTS).reshape(x.shape)
        y[:] = 2 * x

        def graph(orch: Orchestrator, args: TaskArgsView, cfg: CallConfig) -> None:
            for row, (step, host) in enumerate(zip(steps, hosts, strict=True)):
                orch.submit_next_level(
                    step, arguments(x[row], y[row], out[row], where[row]), cfg, worker=host
                )

        w4.run(graph)
        print("sums are right:", bool((out == 3 * x).all()))
        for row, name in enumerate(("first", "second")):
            host = "agent's" if (where[row] == agent).all() else "program's"
            print(f"the {name} half ran in processes of the {host} host")


if __name__ == "__main__":
    main()
