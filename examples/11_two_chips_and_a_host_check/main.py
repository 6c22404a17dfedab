"""Two simulated chips compute and the host checks the result: one graph at level 3."""

import numpy as np

from pto_core import Graph, In, Out, Scalar, Worker, kernel
from pto_core.published import (
    CallConfig,
    ChipCallable,
    DataType,
    Orchestrator,
    TaskArgs,
    TaskArgsView,
    TensorArgType,
)

ROWS, COLUMNS = 128, 256


@kernel(core="aiv")
def multiply(x: In, factor: Scalar, out: Out) -> None:
    """Multiply the elements by ``factor``; runs on a core of a chip."""
    np.multiply(x, np.float32(factor), out=out)


def on_a_chip(rt: Graph, x: In, out: Out, factor: Scalar) -> None:
    """Submit one task for each 32 rows, each on another core; runs on one chip."""
    for first in range(0, x.shape[0], 32):
        rows = slice(first, first + 32)
        rt.submit(multiply, x[rows], factor, out[rows])


def check(args: TaskArgsView) -> None:
    """Check all rows; runs in a separate process on the host."""
    x, top, bottom, verdict = args.tensors
    expected = 3 * x.numpy()
    found = np.concatenate([top.numpy(), bottom.numpy()])
    verdict.numpy()[0] = np.array_equal(found, expected)


def main() -> None:
    """Build the graph, run it, and print the result of the check."""
    w3 = Worker(
        level=3,
        platform="a2a3sim",
        runtime="tensormap_and_ringbuffer",
        device_ids=[0, 1],
        num_sub_workers=1,
    )
    with w3:
        chip = w3.register(ChipCallable(on_a_chip))
        host_check = w3.register(check)
        x = w3.shared_array((ROWS, COLUMNS))
        verdict = w3.shared_array(1, "int64")
        x[:] = np.arange(ROWS * COLUMNS).reshape(x.shape)

        def graph(orch: Orchestrator, args: TaskArgsView, cfg: CallConfig) -> None:
            b = TaskArgs()
            b.add_tensor(x, TensorArgType.INPUT)
            for worker, half in enumerate(np.split(x, 2)):
                out = orch.alloc(half.shape, DataType.FLOAT32)
                a = TaskArgs()
                a.add_tensor(half, TensorArgType.INPUT)
                a.add_tensor(out, TensorArgType.OUTPUT)
                a.add_scalar(3)
                orch.submit_next_level(chip, a, cfg, worker=worker)
                b.add_tensor(out, TensorArgType.INPUT)
            b.add_tensor(verdict, TensorArgType.OUTPUT)
            orch.submit_sub(host_check, b)

        w3.run(graph, args=None, config=CallConfig())
        print("the host says:", "right" if verdict[0] else "wrong")


if __name__ == "__main__":
    main()
