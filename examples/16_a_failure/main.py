"""A task fails: the error, the tasks that still run, and the use of the Worker afterwards."""

import os
import signal

from pto_core import In, Out, Worker, task
from pto_core.errors import ChildDiedError, TaskFailedError


@task
def produce(number: int, out: Out) -> None:
    """Fail for one number."""
    if number == 1:
        raise ValueError(f"number {number} is bad")
    out[:] = number


@task
def consume(x: In, out: Out) -> None:
    """Read the output of a producer."""
    out[:] = x + 100


@task
def crash(out: Out) -> None:
    """Kill the process of the child."""
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    """Let a task fail, then kill a child; use the Worker after each failure."""
    with Worker(level=3, num_sub_workers=2) as worker:
        values, results = worker.shared_array((3, 4)), worker.shared_array((3, 4))
        consumers = []
        try:
            with worker.session() as s:
                for number in range(3):
                    s.submit(produce, number, values[number])
                    consumers.append(s.submit(consume, values[number], results[number]))
        except TaskFailedError as error:
            cause = error.__cause__
            print(f"failed:    {error.callable} in a child: {type(cause).__name__}: {cause}")
            print(f"traceback: {error.remote_traceback.strip().splitlines()[-1]}")
            for one in error.poisoned:
                print(f"poisoned:  {one.callable}, because of task {one.root}")
        print(f"others:    {results[:, 0].tolist()}")
        print(f"asked:     {type(consumers[1].exception()).__name__}")

        try:
            with worker.session() as s:
                s.submit(crash, values[0])
        except ChildDiedError as error:
            print(f"died:      {signal.Signals(error.signal).name}, while it ran {error.callable}")

        with worker.session() as s:
            s.submit(produce, 7, values[0])
        print(f"again:     {values[0, 0]}")


if __name__ == "__main__":
    main()
