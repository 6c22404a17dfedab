"""Level 4: a batch goes through two layers of a network, on as many hosts as the settings name.

PTO_LAUNCHER, PTO_HOSTS and PTO_HOST_RESOURCES choose the hosts; the program stays as it is.
"""

import os
import socket
from collections import Counter
from collections.abc import Callable

import numpy as np

from pto_core import Hosts, Worker
from pto_core.published import (
    CallableHandle,
    CallConfig,
    DataType,
    Orchestrator,
    TaskArgs,
    TaskArgsView,
    TensorArgType,
)

BLOCKS, ROWS, MODEL, HIDDEN = 16, 128, 512, 2048
NAME_BYTES = 80


def layer(args: TaskArgsView) -> None:
    """Compute one layer; runs in a SUB child of a host."""
    x, weights, out = (args.tensor(i) for i in range(3))
    np.maximum(x @ weights, 0, out=out)


def network_of(leaf: CallableHandle) -> Callable[..., None]:
    """Return the graph function of a host, which computes both layers for one block."""

    def network(orch: Orchestrator, args: TaskArgsView, config: CallConfig) -> None:
        x, up, down, out, name = (args.tensor(i) for i in range(5))
        hidden = orch.alloc((ROWS, HIDDEN), DataType.FLOAT32)  # stays on this host
        orch.submit_sub(leaf, arguments((x, up), hidden))
        orch.submit_sub(leaf, arguments((hidden, down), out))
        text = f"{socket.gethostname()}, process {os.getpid()}".encode()[:NAME_BYTES]
        name[: len(text)] = np.frombuffer(text, "uint8")

    return network


def arguments(inputs: tuple[object, ...], *outputs: object) -> TaskArgs:
    """Return the arguments of a task, which states what it reads and what it writes."""
    made = TaskArgs()
    for tensor in inputs:
        made.add_tensor(tensor, TensorArgType.INPUT)
    for tensor in outputs:
        made.add_tensor(tensor, TensorArgType.OUTPUT_EXISTING)
    return made


def main() -> None:
    """Compute all blocks, compare them with NumPy, and print what each host has computed."""
    generator = np.random.default_rng(0)
    host = Worker(level=3, num_sub_workers=1, hosts=Hosts.on())  # one child for each host
    leaf = host.register(layer)
    with Worker(level=4, on_worker_death="restart") as pod:
        pod.add_worker(host)
        step = pod.register(network_of(leaf))
        x, out = (pod.shared_array((BLOCKS, ROWS, MODEL)) for _ in range(2))
        up, down = pod.shared_array((MODEL, HIDDEN)), pod.shared_array((HIDDEN, MODEL))
        names = pod.shared_array((BLOCKS, NAME_BYTES), "uint8")
        for array in (x, up, down):
            array[:] = generator.standard_normal(array.shape) / 16

        with pod.session() as s:  # the weights are sent to each host once, and stay there
            for block in range(BLOCKS):
                task = arguments((x[block], up, down), out[block], names[block])
                s.submit(step, task, retries=1)  # if a host is lost, another one takes its block

        expected = np.maximum(np.maximum(x @ up, 0) @ down, 0)
        print("result is right:", np.allclose(out, expected, atol=1e-4))
        blocks = Counter(bytes(name).rstrip(b"\0").decode() for name in names)
        for number, (name, count) in enumerate(sorted(blocks.items()), 1):
            print(f"host {number} ({name}): {count} of {BLOCKS} blocks")


if __name__ == "__main__":
    main()
