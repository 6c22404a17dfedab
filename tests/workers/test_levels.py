"""Workers with child Workers: the same engine at each level, and errors that contain the path."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from task_arguments import given

from pto_core import (
    ChipCallable,
    DataType,
    Out,
    TaskArgs,
    TensorArgType,
    Worker,
    kernel,
)
from pto_core.errors import DeadlockError, TaskFailedError

CHIPS = {"platform": "a2a3sim", "runtime": "tensormap_and_ringbuffer"}
MIB = 1 << 20


@kernel(core="aiv")
def fill(out: Out) -> None:
    out[:] = 7


def on_chip(rt: Any, out: Out) -> None:
    rt.submit(fill, out)


def bump(args: Any) -> None:
    args.tensor(0)[:] += 1


def fail(args: Any) -> None:
    raise ValueError("deep down")


def submit(call: Any, handle: Any, array: Any, *more: Any) -> None:
    call(handle, given((array, TensorArgType.INOUT)), *more)


def nested(make: Any, levels: int, leaf: Any) -> tuple[Worker, Any]:
    """Return a Worker of that level with one child at each level down to 3, and its graph."""
    worker = make(level=3, num_sub_workers=1)
    handle = worker.register(leaf)

    def graph(orch, args, cfg, handle=handle) -> None:
        submit(orch.submit_sub, handle, args.tensor(0))

    for level in range(4, levels + 1):
        above = make(level=level)
        above.add_worker(worker)
        handle = above.register(graph)

        def graph(orch, args, cfg, handle=handle) -> None:
            submit(orch.submit_next_level, handle, args.tensor(0), cfg)

        worker = above
    return worker, graph


def test_a_pod_of_hosts_with_chips(make) -> None:
    w4 = make(level=4)
    graphs = []
    for device in range(2):
        w3 = make(level=3, device_ids=[device], num_sub_workers=1, **CHIPS)
        chip, sub = w3.register(ChipCallable(on_chip)), w3.register(bump)

        def on_host(orch, args, cfg, chip=chip, sub=sub) -> None:
            out = args.tensor(0)
            orch.submit_next_level(chip, given((out, TensorArgType.OUTPUT)), cfg)
            submit(orch.submit_sub, sub, out)

        graphs.append(w4.register(on_host))
        assert w4.add_worker(w3) == device
    rows = w4.shared_array((2, 64))

    def graph(orch, args, cfg) -> None:
        for host, handle in enumerate(graphs):
            row = given((rows[host], TensorArgType.OUTPUT))
            orch.submit_next_level(handle, row, cfg, worker=host)

    w4.run(graph)
    assert (rows == 8).all()


def test_a_tree_of_all_levels_runs_repeatedly(make) -> None:
    top, graph = nested(make, 6, bump)
    array = top.shared_array(16)
    for expected in (1, 2):
        top.run(graph, args=given((array, TensorArgType.INOUT)))
        np.testing.assert_array_equal(array, expected)


def test_an_error_keeps_its_path_through_all_levels(make) -> None:
    top, graph = nested(make, 5, fail)
    array = top.shared_array(16)
    with pytest.raises(
        TaskFailedError, match=r"^L5/pod0/host0/sub0: ValueError: deep down"
    ) as caught:
        top.run(graph, args=given((array, TensorArgType.INOUT)))
    assert caught.value.path == "L5/pod0/host0/sub0"
    assert 'raise ValueError("deep down")' in caught.value.remote_traceback
    cause: Any = caught.value
    while isinstance(cause, TaskFailedError):
        callable_, cause = cause.callable, cause.__cause__
    assert callable_ == "fail"
    assert isinstance(cause, ValueError)


def seven(args: Any) -> None:
    args.tensor(0)[:] = 7


def collect(args: Any) -> None:
    args.tensor(1)[:] += args.tensor(0)[:16]


def moved(of: Any, to: Any) -> TaskArgs:
    return given((of, TensorArgType.INPUT), (to, TensorArgType.INOUT))


class Rings:
    """Rings of 16 MiB at level 4 above rings of 1 MiB at level 3; graphs allocate more."""

    def __init__(self, make: Any) -> None:
        self.w4, w3 = make(level=4), make(num_sub_workers=1, heap_ring_size=MIB)
        self._seven, self._collect = w3.register(seven), w3.register(collect)
        self._on_host = self.w4.register(self._host)
        self.w4.add_worker(w3)

    def _allocate_and_collect(self, orch: Any, total: Any) -> None:
        part = orch.alloc((MIB // 2,), DataType.UINT8)
        submit(orch.submit_sub, self._seven, part)
        orch.submit_sub(self._collect, moved(part, total))

    def _host(self, orch: Any, args: Any, cfg: Any) -> None:
        whole, total = args.tensor(0), args.tensor(1)
        assert whole.nbytes > MIB, "the array fits in the rings of this host"
        for _ in range(6):
            if args.scalar(0):
                with orch.scope():
                    self._allocate_and_collect(orch, total)
            else:
                self._allocate_and_collect(orch, total)

    def run(self, *, scopes: bool) -> Any:
        """Let the host collect six parts, each of half its ring; repeat ten times if ``scopes``."""
        total = self.w4.shared_array(16, "uint8")

        def graph(orch: Any, args: Any, cfg: Any) -> None:
            for _ in range(10 if scopes else 1):
                with orch.scope():
                    both = moved(orch.alloc((4 * MIB,), DataType.UINT8), total)
                    both.add_scalar(scopes)
                    orch.submit_next_level(self._on_host, both, cfg)

        self.w4.run(graph)
        return total


def test_each_level_has_scopes_and_rings_of_its_own(make) -> None:
    assert (Rings(make).run(scopes=True) == 10 * 6 * 7 % 256).all()


def test_a_deadlock_below_names_its_level_and_leaves_the_one_above_usable(make) -> None:
    rings = Rings(make)
    with pytest.raises(TaskFailedError, match=r"^L4/host0: DeadlockError: .*heap_ring_size") as (
        caught
    ):
        rings.run(scopes=False)
    error: Any = caught.value.__cause__
    assert isinstance(error, DeadlockError)
    assert error.resource == "heap ring"
    assert MIB < error.settings["heap_ring_size"] < 16 * MIB
    assert (rings.run(scopes=True) == 10 * 6 * 7 % 256).all()
