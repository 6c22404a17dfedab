"""Level 4: a pod of two hosts, each with its own processes, and a graph at each level."""

import os
from collections.abc import Callable

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

HOSTS, WORKERS, ROWS, COLUMNS = 2, 2, 64, 1024


def sum_rows(args: TaskArgsView) -> None:
    """Sum the rows; runs in a SUB child of a host."""
    rows, sums, who = args.tensors
    sums.numpy()[:] = rows.numpy().sum(axis=1)
    who.numpy()[0] = os.getpid()


def host_graph_of(leaf: CallableHandle) -> Callable[..., None]:
    """Return the graph function of a host, which splits its rows over its children."""

    def on_a_host(orch: Orchestrator, args: TaskArgsView, cfg: CallConfig) -> None:
        rows, sums, who = (args.tensor(i) for i in range(3))
        for worker in range(WORKERS):
            a = TaskArgs()
            a.add_tensor(np.split(rows, WORKERS)[worker], TensorArgType.INPUT)
            a.add_tensor(np.split(sums, WORKERS)[worker], TensorArgType.OUTPUT)
            a.add_tensor(np.split(who, WORKERS)[worker], TensorArgType.OUTPUT)
            orch.submit_sub(leaf, a, worker=worker)

    return on_a_host


def main() -> None:
    """Build the pod, sum all rows, and count the processes that worked."""
    with Worker(level=4) as w4:
        host_graphs = []
        for _ in range(HOSTS):
            w3 = Worker(level=3, num_sub_workers=WORKERS)
            host_graphs.append(w4.register(host_graph_of(w3.register(sum_rows))))
            w4.add_worker(w3)
        x = w4.shared_array((ROWS, COLUMNS), "int64")
        sums = w4.shared_array(ROWS, "int64")
        who = w4.shared_array(HOSTS * WORKERS, "int64")
        x[:] = np.arange(ROWS * COLUMNS).reshape(x.shape)

        def graph(orch: Orchestrator, args: TaskArgsView, cfg: CallConfig) -> None:
            rows = ROWS // HOSTS
            for host, on_a_host in enumerate(host_graphs):
                mine = slice(host * rows, (host + 1) * rows)
                a = TaskArgs()
                a.add_tensor(x[mine], TensorArgType.INPUT)
                a.add_tensor(sums[mine], TensorArgType.OUTPUT)
                a.add_tensor(who[host * WORKERS : (host + 1) * WORKERS], TensorArgType.OUTPUT)
                orch.submit_next_level(on_a_host, a, cfg, worker=host)

        w4.run(graph)
        print("sums are right:", bool((sums == x.sum(axis=1)).all()))
        print("hosts:", HOSTS, "- leaves that worked:", len(set(who.tolist()) - {os.getpid()}))


if __name__ == "__main__":
    main()
