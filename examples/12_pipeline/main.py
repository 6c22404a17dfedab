"""A pipeline of three stages over four processes, with a progress bar."""

import numpy as np

from pto_core import In, Out, Worker, task

ITEMS, SLOTS, SIZE = 200, 8, 16_384


@task
def load(number: int, out: Out) -> None:
    """Create the data of an item."""
    out[:] = np.random.default_rng(number).standard_normal(out.size)


@task
def transform(x: In, out: Out) -> None:
    """Sort the data."""
    out[:] = np.sort(np.tanh(x))


@task
def reduce(x: In, total: Out) -> None:
    """Reduce the data to one number."""
    total[0] = x[0] + x[-1]


def main() -> None:
    """Process all items, with eight buffers per stage, and print a sum."""
    with Worker(level=3, num_sub_workers=4) as worker:
        loaded, sorted_ = (worker.shared_array((SLOTS, SIZE), "float64") for _ in range(2))
        totals = worker.shared_array((ITEMS, 1), "float64")
        with worker.session(progress=True) as s:
            for item in range(ITEMS):
                slot = item % SLOTS
                s.submit(load, item, loaded[slot])
                s.submit(transform, loaded[slot], sorted_[slot])
                s.submit(reduce, sorted_[slot], totals[item])
        print(f"{ITEMS} items, {3 * ITEMS} tasks, sum {totals.sum():.6f}")


if __name__ == "__main__":
    main()
