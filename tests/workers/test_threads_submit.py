"""Threads of a graph function submit to its run side by side."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
from task_arguments import given

from pto_core import TensorArgType, Worker

THREADS, TASKS = 8, 60


def append(args: Any) -> None:
    """Append a number to a list: its length is the first element."""
    numbers = args.tensor(0)
    length = int(numbers[0]) + 1
    numbers[length] = args.scalar(0)
    numbers[0] = length


def test_eight_threads_submit_and_every_edge_holds() -> None:
    """No append is lost, so the tasks on one list are ordered, and in the order of each thread."""
    with Worker(3, num_sub_workers=2) as worker:
        handle = worker.register(append)
        shared = worker.shared_array(1 + THREADS * TASKS, "int64")
        own = worker.shared_array((THREADS, 1 + TASKS), "int64")

        def graph(orch: Any, _: Any, config: Any) -> None:
            gate = threading.Barrier(THREADS)

            def submit(thread: int) -> None:
                gate.wait()
                for task in range(TASKS):
                    for numbers, value in ((shared, thread * TASKS + task), (own[thread], task)):
                        args = given((numbers, TensorArgType.INOUT), scalars=(value,))
                        orch.submit_sub(handle, args)

            threads = [threading.Thread(target=submit, args=(i,)) for i in range(THREADS)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

        worker.run(graph)
        assert shared[0] == THREADS * TASKS
        order = shared[1:].copy()
        np.testing.assert_array_equal(own, [[TASKS, *range(TASKS)]] * THREADS)
    for thread in range(THREADS):
        assert list(order[order // TASKS == thread]) == [
            *range(thread * TASKS, (thread + 1) * TASKS)
        ]
