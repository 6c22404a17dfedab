"""A feed-forward layer split over two chips; the host adds the partial results."""

import numpy as np

from pto_core import Graph, In, Out, Worker, kernel, task
from pto_core.chip import ChipCallable

TOKENS, MODEL, HIDDEN, CHIPS = 64, 128, 512, 2


@kernel(core="aic")
def matmul(x: In, y: In, out: Out) -> None:
    """Multiply two matrices on a cube core."""
    np.matmul(x, y, out=out)


@kernel(core="aiv")
def silu(x: In, out: Out) -> None:
    """Apply the activation on a vector core."""
    np.divide(x, 1 + np.exp(-x), out=out)


def half_of_the_layer(rt: Graph, x: In, up: In, down: In, out: Out) -> None:
    """Submit the tasks of one chip, which has half of the hidden units."""
    hidden, active = (rt.tensor((TOKENS, up.shape[1]), "float32") for _ in range(2))
    rt.submit(matmul, x, up, hidden)
    rt.submit(silu, hidden, active)
    rt.submit(matmul, active, down, out)


@task
def add(partial_0: In, partial_1: In, out: Out) -> None:
    """Add the partial results on the host."""
    np.add(partial_0, partial_1, out=out)


def main() -> None:
    """Run the layer and compare it with NumPy."""
    generator = np.random.default_rng(0)
    with Worker(
        level=3,
        platform="a2a3sim",
        runtime="tensormap_and_ringbuffer",
        device_ids=range(CHIPS),
        num_sub_workers=1,
    ) as worker:
        layer = ChipCallable(half_of_the_layer)
        worker.register(layer)
        x, out = (worker.shared_array((TOKENS, MODEL)) for _ in range(2))
        up = worker.shared_array((CHIPS, MODEL, HIDDEN // CHIPS))
        down = worker.shared_array((CHIPS, HIDDEN // CHIPS, MODEL))
        for array in (x, up, down):
            array[:] = generator.standard_normal(array.shape) / 8
        with worker.session() as s:
            partials = [s.empty((TOKENS, MODEL)) for _ in range(CHIPS)]
            for chip, partial in enumerate(partials):
                s.submit(layer, x, up[chip], down[chip], partial, worker=chip)
            s.submit(add, *partials, out)

        hidden = x @ np.concatenate(up, axis=1)
        expected = hidden / (1 + np.exp(-hidden)) @ np.concatenate(down)
        print("largest difference below 1e-4:", bool(np.abs(out - expected).max() < 1e-4))


if __name__ == "__main__":
    main()
