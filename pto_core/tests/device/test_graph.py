"""The graph that a Python orchestration builds: the calls that it accepts and refuses."""

from __future__ import annotations

import itertools
import re
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pto_core
from pto_core import ChipCallable, Device, Progress, kernel
from pto_core.device import Graph
from pto_core.errors import CapacityError, CycleError, PtoError, UnsupportedError, UsageError


@kernel(core="aiv")
def nothing(*args):
    pass


@kernel(core="aic")
def on_cube(*args):
    pass


def refused(device: Device, build: Callable[[Graph], Any], kind: type[PtoError]) -> PtoError:
    """Require that ``build`` fails and that the device works afterwards; return the error."""

    def graph(rt):
        build(rt)

    with pytest.raises(kind) as caught:
        device.run(graph)
    assert device.run(lambda rt: rt.publish(rt.add_task(nothing, ()))).tasks == 1
    return caught.value


def test_tasks_have_ids_from_zero(device: Device) -> None:
    ids = []

    def graph(rt):
        ids.extend(rt.add_task(nothing, ()) for _ in range(5))
        for task in ids:
            rt.publish(task)

    assert device.run(graph).tasks == 5
    assert ids == [0, 1, 2, 3, 4]


def test_an_empty_graph_is_a_run(device: Device) -> None:
    assert device.run(lambda rt: None).tasks == 0


def test_kernels_go_to_their_type_of_core(device: Device) -> None:
    def graph(rt):
        for _ in range(3):
            rt.publish(rt.add_task(on_cube, ()))
        rt.publish(rt.add_task(nothing, ()))

    report = device.run(graph)
    cores = report.cores
    assert ">4 of 72<" in report._repr_html_()
    assert sum(tasks for core, tasks, _ in cores if core == "aic") == 3
    assert sum(tasks for core, tasks, _ in cores if core == "aiv") == 1
    assert [core for core, _, _ in cores].count("aic") * 2 == [c for c, _, _ in cores].count("aiv")


def test_progress_counts_the_kernels_that_have_begun_and_ended(device: Device) -> None:
    seen: list[Progress] = []
    is_seen = threading.Event()

    @kernel(core="aiv")
    def wait():
        assert is_seen.wait(60)

    def listen(progress: Progress) -> None:
        seen.append(progress)
        if (progress.submitted, progress.finished) == (2, 1):
            is_seen.set()

    def graph(rt):
        first, second = rt.add_task(nothing, ()), rt.add_task(wait, ())
        rt.add_successor(first, second)
        for one in (first, second):
            rt.publish(one)

    device.run(graph, progress=listen)
    device.run(graph, progress=listen)
    assert Progress(2, 1, 0, noun="kernels") in seen
    assert seen[-1] == Progress(2, 2, 0, is_over=True, noun="kernels")


def test_edges_order(device: Device) -> None:
    order: list[int] = []

    @kernel(core="aiv")
    def note(number):
        order.append(number)

    def graph(rt):
        tasks = [rt.add_task(note, (n,)) for n in range(50)]
        for later, earlier in itertools.pairwise(tasks):
            rt.add_successor(earlier, later)
        for task in tasks:
            rt.publish(task)

    device.run(graph)
    assert order == list(range(49, -1, -1))


def test_children_are_reached_by_id_and_by_object(device: Device) -> None:
    seen: list[str] = []

    @kernel(core="aiv")
    def first():
        seen.append("first")

    @kernel(core="aiv")
    def second():
        seen.append("second")

    def graph(rt):
        rt.publish(rt.add_task(300, ()))
        rt.publish(rt.add_task(first, ()))
        rt.publish(rt.add_task(second, ()))

    assert device.run(ChipCallable(graph, {300: first})).tasks == 3
    assert sorted(seen) == ["first", "first", "second"]


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda rt: rt.add_task(len, ()), "is not a kernel; decorate it with @kernel"),
        (lambda rt: rt.add_task("add", ()), "is not a kernel"),
        (lambda rt: rt.add_task(pto_core.task(len), ()), "in the place of @task"),
        (lambda rt: rt.add_task(7, ()), "no kernel has func_id 7"),
        (lambda rt: rt.add_task(-1, ()), "no kernel has func_id -1"),
        (lambda rt: rt.add_task(2**70, ()), "no kernel has func_id"),
        (lambda rt: rt.add_task(nothing, 3), "pass a tuple"),
        (lambda rt: rt.add_task(nothing, (1, "x")), "argument 1 of a task of kernel 'nothing'"),
        (lambda rt: rt.add_task(nothing, (np.zeros(3),)), "argument 0 of a task"),
        (lambda rt: rt.add_successor(0, "x"), "the second task of an edge is 'x'"),
        (lambda rt: rt.add_successor(-1, 0), "the first task of an edge is -1"),
        (lambda rt: rt.publish(None), "the task to publish is None"),
        (lambda rt: rt.add_successor(rt.add_task(nothing, ()), 99), "does not exist"),
        (lambda rt: rt.empty((2, -1), "float32"), "shape (2, -1) is not valid"),
        (lambda rt: rt.empty("ab", "float32"), "shape 'ab' is not valid"),
        (lambda rt: rt.empty(3, "text"), "not a data type"),
        (lambda rt: rt.empty(3, ">f4"), "is not supported on a device"),
    ],
)
def test_misuse_is_a_usage_error(
    device: Device, build: Callable[[Graph], Any], message: str
) -> None:
    assert re.search(re.escape(message), str(refused(device, build, UsageError)))


def test_scopes_are_unsupported(device: Device, runtime: str) -> None:
    assert runtime in str(refused(device, lambda rt: rt.scope(), UnsupportedError))


def test_too_many_arguments_of_a_task(device: Device) -> None:
    error = refused(device, lambda rt: rt.add_task(nothing, (0,) * 100), CapacityError)
    assert (error.value, error.limit) == (100, 64)


def test_a_python_kernel_accepts_as_many_arguments_as_a_cpp_kernel(device: Device) -> None:
    seen: list[tuple[object, ...]] = []

    @kernel(core="aiv")
    def collect(*args):
        seen.append(args)

    device.run(lambda rt: rt.publish(rt.add_task(collect, tuple(range(64)))))
    assert seen == [tuple(range(64))]


def test_a_self_edge_is_a_cycle(device: Device) -> None:
    def build(rt):
        task = rt.add_task(nothing, ())
        rt.add_successor(task, task)

    error = refused(device, build, CycleError)
    assert error.task == 0
    assert "kernel 'nothing'" not in error.message


def test_a_graph_is_unusable_after_its_run(device: Device) -> None:
    kept: list[Any] = []

    def graph(rt, a):
        kept.extend((rt, a, rt.empty(3, "int32")))

    device.run(graph, np.zeros(3))
    rt, argument, temporary = kept
    with pytest.raises(UsageError, match="after its run"):
        rt.add_task(nothing, ())
    for array in (argument, temporary):
        with pytest.raises(UsageError, match="after the end of its run"):
            array.to_host()
        with pytest.raises(UsageError, match="after the end of its run"):
            device.run(graph, array)


def test_a_graph_belongs_to_its_thread(device: Device) -> None:
    errors: list[str] = []

    def graph(rt):
        def elsewhere():
            for call in (lambda: rt.add_task(nothing, ()), lambda: device.empty(3)):
                try:
                    call()
                except UsageError as error:
                    errors.append(str(error))

        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()

    device.run(graph)
    assert ["another thread" in error for error in errors] == [True, True]


def test_a_run_cannot_start_or_close_its_device(device: Device) -> None:
    refused(device, lambda rt: device.run(lambda rt: None), UsageError)
    refused(device, lambda rt: device.close(), UsageError)


@pytest.mark.parametrize("chip", [3, None, "graph", int, [1]])
def test_only_chips_and_functions_run(device: Device, chip: Any) -> None:
    with pytest.raises(UsageError, match="cannot be run"):
        device.run(chip)


def test_an_orchestration_needs_rt(device: Device) -> None:
    with pytest.raises(UsageError, match="first parameter must be rt"):
        device.run(lambda: None)
