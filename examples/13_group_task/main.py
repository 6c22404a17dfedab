"""A group: one task that runs in several processes at once and completes once."""

import numpy as np

from pto_core import In, InOut, Out, Worker, task

MEMBERS, ROWS, COLUMNS = 3, 96, 64


@task
def normalise(rows: InOut) -> None:
    """Normalise the rows of one member of the group."""
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)


@task
def similarity(x: In, out: Out) -> None:
    """Compare all rows. Runs after the group, because it reads the rows of all members."""
    np.matmul(x, x.T, out=out)


def main() -> None:
    """Normalise three blocks of rows in parallel, then compare all rows with each other."""
    with Worker(level=3, num_sub_workers=MEMBERS) as worker:
        x = worker.shared_array((ROWS, COLUMNS), "float64")
        out = worker.shared_array((ROWS, ROWS), "float64")
        x[:] = np.random.default_rng(0).standard_normal(x.shape)
        with worker.session() as s:
            group = s.submit_group(normalise, [[block] for block in np.split(x, MEMBERS)])
            after = s.submit(similarity, x, out)
            after.result()
            print(f"task {group.task_slot} ran {MEMBERS} times, task {after.task_slot} once")
        print(f"diagonal {out.diagonal().min():.3f} to {out.diagonal().max():.3f}")


if __name__ == "__main__":
    main()
