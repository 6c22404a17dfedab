"""Children that request the uses of tensors receive them; other children receive zeros."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import recording_transport
from fake_distributions import Site
from recording_transport import pads_of, recorded
from task_arguments import given

from pto_core import ContinuousTensor, TensorArgType, Worker
from pto_core.worker import child_group

IN, OUT, INOUT = TensorArgType.INPUT, TensorArgType.OUTPUT, TensorArgType.INOUT
EXISTING, NO_DEP = TensorArgType.OUTPUT_EXISTING, TensorArgType.NO_DEP
ALLOCATED = 8
RECEIVES, PLAIN = 0, 1  # the numbers of the children
PATHS = {RECEIVES: "L3/sub0", PLAIN: "L3/sub1"}

MakeMixed = Callable[..., Worker]


def nothing(args: Any) -> None: ...


@pytest.fixture
def mixed(make, monkeypatch: pytest.MonkeyPatch, site: Site) -> MakeMixed:
    """Make a Worker with two children, of which the first receives the use of tensors."""
    recording_transport.install(site)
    real = child_group.child_specs

    def specs(*arguments: Any) -> list[Any]:
        first, *others = real(*arguments)
        return [replace(first, receives_use=True), *others]

    monkeypatch.setattr(child_group, "child_specs", specs)
    recorded.clear()
    return lambda **settings: make(
        num_sub_workers=2, transport=recording_transport.NAME, **settings
    )


def uses(child: int) -> list[list[int]]:
    """Return the tensor uses in each task frame of a child; require that all other bytes are 0."""
    pads = [pads_of(frame) for frame in recorded.get(PATHS[child], [])]
    assert all(pad[1:] == bytes(5) for frame in pads for pad in frame)
    return [[pad[0] for pad in frame] for frame in pads]


def stated(*tags: TensorArgType, allocated: tuple[int, ...] = ()) -> list[int]:
    """Return the expected uses of tensors with these tags."""
    return [tag + 1 + (ALLOCATED if i in allocated else 0) for i, tag in enumerate(tags)]


def buffer() -> ContinuousTensor:
    """Make a tensor without memory."""
    return ContinuousTensor.from_pointer(0, (8,), "int64")


def all_tags(rows: Any) -> Any:
    """Make arguments with a row for each tag, and an OUTPUT without memory."""
    return given(
        *((row, tag) for row, tag in zip(rows, (IN, OUT, INOUT, EXISTING, NO_DEP), strict=True)),
        (buffer(), OUT),
    )


ALL = stated(IN, OUT, INOUT, EXISTING, NO_DEP, OUT, allocated=(5,))


def test_single_tasks(mixed: MakeMixed) -> None:
    worker = mixed()
    handle = worker.register(nothing)
    rows = worker.shared_array((5, 8), "int64")

    def graph(orch: Any, args: Any, config: Any) -> None:
        for child in (RECEIVES, PLAIN, RECEIVES):
            orch.submit_sub(handle, all_tags(rows), worker=child)
        orch.submit_sub(handle, worker=RECEIVES)

    worker.run(graph)
    assert sorted(uses(RECEIVES)) == [[], ALL, ALL]
    assert uses(PLAIN) == [[0] * 6]


def test_each_member_of_a_group(mixed: MakeMixed) -> None:
    worker = mixed()
    handle = worker.register(nothing)
    rows = worker.shared_array((5, 8), "int64")

    def graph(orch: Any, args: Any, config: Any) -> None:
        for children in ([RECEIVES, PLAIN], [PLAIN, RECEIVES]):
            members = [given((rows[0], IN), (buffer(), OUT)), given((rows[1], INOUT))]
            orch.submit_sub_group(handle, members, workers=children)

    worker.run(graph)
    assert uses(RECEIVES) == [stated(IN, OUT, allocated=(1,)), stated(INOUT)]
    assert uses(PLAIN) == [[0], [0, 0]]


def test_tasks_of_submit_many(mixed: MakeMixed) -> None:
    worker = mixed()
    handle = worker.register(nothing)
    rows = worker.shared_array((64, 8), "int64")

    def graph(orch: Any, args: Any, config: Any) -> None:
        orch.submit_sub_many(handle, given((rows, INOUT), (rows, NO_DEP)))

    worker.run(graph)
    received, plain = uses(RECEIVES), uses(PLAIN)
    assert received == [stated(INOUT, NO_DEP)] * len(received) != []
    assert plain == [[0, 0]] * (len(rows) - len(received))


@pytest.mark.parametrize("is_known", [True, False])
def test_replays(mixed: MakeMixed, is_known: bool) -> None:
    worker = mixed()
    handle = worker.register(nothing)
    rows = worker.shared_array((4, 8), "int64")

    def graph(orch: Any, args: Any, config: Any) -> None:
        made = orch.alloc((8,), "int64")
        for child in (RECEIVES, PLAIN):
            values = given((args.tensors[0], IN), (args.tensors[1], EXISTING), (buffer(), OUT))
            orch.submit_sub(handle, values, worker=child)
            members = [given((made, INOUT), (buffer(), OUT)), given((made, NO_DEP))]
            orch.submit_sub_group(handle, members, workers=[child, 1 - child])

    captured = worker.capture(graph, given((rows[0], IN), (rows[1], EXISTING)))
    other = 3 if is_known else 2  # overlapping arguments have other edges than the captured ones
    for _ in range(2):
        worker.replay(captured, given((rows[2], IN), (rows[other], EXISTING)))
    single = stated(IN, EXISTING, OUT, allocated=(2,))
    expected = sorted([single, stated(INOUT, OUT, allocated=(1,)), stated(NO_DEP)] * 2)
    assert sorted(uses(RECEIVES)) == expected
    assert all(use == 0 for frame in uses(PLAIN) for use in frame)
    assert len(uses(PLAIN)) == 6


def die_once(args: Any) -> None:
    """Exit if this is the first call, which the state of the descriptor records."""
    if not os.get_blocking(args.scalar(0)):
        return
    os.set_blocking(args.scalar(0), False)
    os._exit(3)


@pytest.mark.parametrize("first", [RECEIVES, PLAIN])
def test_a_task_that_runs_again_on_another_child(mixed: MakeMixed, first: int) -> None:
    reading, writing = os.pipe()
    try:
        worker = mixed(on_worker_death="reroute")
        handle = worker.register(die_once)
        row = worker.shared_array(8, "int64")

        def graph(orch: Any, args: Any, config: Any) -> None:
            values = given((row, INOUT), (buffer(), OUT), scalars=(reading,))
            orch.submit_sub(handle, values, worker=first, hint=True, retries=1)

        worker.run(graph)
    finally:
        os.close(reading)
        os.close(writing)
    assert uses(RECEIVES) == [stated(INOUT, OUT, allocated=(1,))]
    assert uses(PLAIN) == [[0, 0]]


def test_a_worker_whose_children_do_not_request_uses_sends_zeros(make, site: Site) -> None:
    recording_transport.install(site)
    recorded.clear()
    worker = make(num_sub_workers=1, transport=recording_transport.NAME)
    handle = worker.register(nothing)
    rows = worker.shared_array((5, 8), "int64")
    worker.run(lambda orch, args, config: orch.submit_sub(handle, all_tags(rows)))
    assert uses(RECEIVES) == [[0] * 6]
