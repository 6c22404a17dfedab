"""The tasks of a Worker whose children are killed. Each task counts its starts and ends."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

import kill_graphs
import numpy as np
from kill_graphs import ALWAYS_FAILS, FAILS_FIRST

from pto_core import In, InOut, Scalar, TaskArgs, TensorArgType, Worker, kernel
from pto_core.errors import UsageError

INNER_RETRIES = 1
TAGS = {1: TensorArgType.OUTPUT, 2: TensorArgType.INPUT, 3: TensorArgType.INOUT}

# Counters by task and member, in shared memory that all children inherit.
begun = ended = np.zeros((0, 0), np.int64)


def count_in(worker: Worker) -> None:
    """Allocate the counters of tasks in the memory of a Worker that has not started."""
    global begun, ended
    shape = (kill_graphs.MOST_TASKS, kill_graphs.MOST_MEMBERS)
    begun, ended = worker.shared_array(shape, "int64"), worker.shared_array(shape, "int64")


def stop_counting() -> None:
    """Drop the references to the Worker's memory."""
    global begun, ended
    begun = ended = np.zeros((0, 0), np.int64)


def enter(number: int, member: int, behaviour: int) -> None:
    begun[number, member] += 1
    is_first = begun[number, member] == 1
    if behaviour == ALWAYS_FAILS or (behaviour == FAILS_FIRST and is_first):
        raise ValueError(f"task {number}")


def work(args: Any) -> None:
    """The task of a SUB child."""
    number, member, behaviour, bits, pause_us = (args.scalar(i) for i in range(5))
    enter(number, member, behaviour)
    kill_graphs.compute(number, bits, [args.tensor(i) for i in range(args.tensor_count)])
    if pause_us:
        time.sleep(pause_us / 1e6)
    ended[number, member] += 1


@kernel(core="aiv")
def mix(x: In, number: Scalar, bits: Scalar, y: InOut) -> None:
    kill_graphs.compute(int(number), int(bits), [x, y])


def on_chip(rt: Any, x: In, y: InOut, number: int, member: int, behaviour: int, *rest: int) -> None:
    """The task of a chip child whose runtime derives edges."""
    enter(number, member, behaviour)
    rt.submit(mix, x, number, rest[0], y)
    ended[number, member] += 1


def on_graph_chip(
    rt: Any, x: In, y: InOut, number: int, member: int, behaviour: int, *rest: int
) -> None:
    """The task of a chip child whose runtime requires explicit edges."""
    enter(number, member, behaviour)
    rt.publish(rt.add_task(mix, (x, number, rest[0], y)))
    ended[number, member] += 1


def host_graph(leaves: list[Any]) -> Callable[..., None]:
    """Return the task of a child Worker, which submits one task to its own SUB child.

    ``leaves``: the handles of all hosts. A host accepts only its own handle.
    """

    def on_host(orch: Any, args: Any, config: Any) -> None:
        bits = args.scalar(3)
        made = TaskArgs()
        for index, tensor in enumerate(args.tensors):
            made.add_tensor(tensor, TAGS[bits >> 2 * index & 3])
        for index in range(args.scalar_count):
            made.add_scalar(args.scalar(index))
        for leaf in leaves:
            with contextlib.suppress(UsageError):
                orch.submit_sub(leaf, made, retries=INNER_RETRIES)
                return
        raise AssertionError("no handle belongs to this host")

    return on_host
