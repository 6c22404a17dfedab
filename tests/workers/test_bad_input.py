"""Mistakes of programs: each raises one clear error at the call, and has no other effect."""

from __future__ import annotations

import gc
import re
import sys
import time
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from task_arguments import given

from pto_core import (
    CallConfig,
    ChipCallable,
    ContinuousTensor,
    CoreCallable,
    In,
    Out,
    TaskArgs,
    TensorArgType,
    Worker,
    task,
)
from pto_core.errors import (
    CapacityError,
    ConfigError,
    TaskFailedError,
    UsageError,
    WorkerClosedError,
)

CHIPS = {"platform": "a2a3sim", "runtime": "tensormap_and_ringbuffer"}


def mark(args: Any) -> None:
    args.tensor(0)[:] = args.scalar(0)


def nothing() -> None: ...


@task
def copy(x: In, out: Out) -> None:
    out[:] = x


@task
def untyped(x) -> None: ...


def on_chip(rt: Any, out: Out) -> None: ...


@pytest.fixture
def world(make) -> SimpleNamespace:
    """A running Worker, with the objects that a graph needs."""
    worker = make(num_sub_workers=2)
    return SimpleNamespace(
        worker=worker,
        mark=worker.register(mark),
        nothing=worker.register(nothing),
        out=worker.shared_array((2, 8)),
    )


def still_works(world: SimpleNamespace) -> None:
    args = given((world.out, TensorArgType.OUTPUT), scalars=(3,))
    world.worker.run(lambda orch, _, cfg: orch.submit_sub(world.mark, args))
    assert (world.out == 3).all()


def refused(world: SimpleNamespace, submit: Any, message: str, kind: type = UsageError) -> None:
    """Check the error of the call, that the run continues, and that the Worker remains usable."""

    def graph(orch, args, cfg) -> None:
        with pytest.raises(kind, match=message):
            submit(orch)
        orch.submit_sub(world.nothing)

    world.worker.run(graph)
    still_works(world)


def test_an_object_that_is_no_handle(world) -> None:
    refused(world, lambda orch: orch.submit_sub(mark), "handle")
    refused(world, lambda orch: orch.submit_sub("mark"), "handle")
    refused(world, lambda orch: orch.submit_sub(None), "handle")


END = "nothing: the end of the with block waits for the tasks"


@pytest.mark.parametrize(
    ("owner", "name", "call"),
    [
        *((copy, name, "worker.submit(copy, ...)") for name in ("remote", "submit", "delay")),
        (copy, "map", "worker.map(copy, ...)"),
        (copy, "options", "worker.options(...).submit(copy, ...)"),
        (Worker(3), "get", "handle.result() for each handle"),
        (Worker(3), "wait", "concurrent.futures.wait(handles)"),
        (Worker(3), "zeros", "worker.shared_array(shape, dtype)"),
        (Worker(3).session(), "map", "worker.map(function, items)"),
        (Worker(3).session(), "array", "worker.array(values) for an array"),
        (Worker(3), "shutdown", "worker.close()"),
        *((Worker(3).session(), name, END) for name in ("shutdown", "terminate", "join")),
    ],
)
def test_a_call_of_another_library_names_the_call_to_write(owner, name, call) -> None:
    with pytest.raises(AttributeError, match=re.escape(f"'{name}'; write {call}") + "$"):
        getattr(owner, name)
    assert not hasattr(owner, "other")


def test_the_use_of_a_handle_as_a_value_names_result(world) -> None:
    handle = world.worker.submit(copy, world.out[0], world.out[1])
    for use in (
        lambda: handle + 1,
        lambda: 2 * handle,
        lambda: world.out - handle,
        lambda: handle < 3,
        lambda: handle[0],
        lambda: list(handle),
    ):
        with pytest.raises(TypeError, match=r"is not the value of the task; call handle\.result"):
            use()
    with pytest.raises(UsageError, match=r"items is <TaskHandle .*its result"):
        world.worker.map(abs, handle)
    with pytest.raises(UsageError, match="items is 3; pass a list"):
        world.worker.map(abs, 3)
    with pytest.raises(UsageError, match=r"values is <TaskHandle .*pass its result"):
        world.worker.array(handle)
    with world.worker.session() as s, pytest.raises(UsageError, match="0 of wait is <TaskHandle"):
        s.wait(handle)


def test_mistakes_about_shapes_name_what_to_write(world) -> None:
    with world.worker.session() as s:
        for make_array in (world.worker.shared_array, s.empty):
            with pytest.raises(UsageError, match=r"a shape .* is a tuple, such as \(3, 4\)"):
                make_array(3, 4)
    with pytest.raises(UsageError, match=r"is not valid.* call worker\.array\(values\)"):
        world.worker.shared_array(np.arange(3) / 2)
    with pytest.raises(UsageError, match="progress is 3; pass True"):
        world.worker.session(progress=3)


def test_a_task_for_a_worker_without_processes_names_the_parameter(make) -> None:
    worker = make()
    array = worker.shared_array(3)
    for call, subject in (
        (lambda: worker.submit(copy, array, array), "the @task copy"),
        (lambda: worker.map(abs, [1]), "map or an executor"),
        (lambda: worker.executor().submit(abs, 1), "map or an executor"),
    ):
        with pytest.raises(UsageError, match=f"{subject} needs a process.*num_sub_workers=1"):
            call()


def test_a_handle_of_the_wrong_kind(make) -> None:
    w3 = make(num_sub_workers=1, device_ids=[0], **CHIPS)
    chip, sub = w3.register(ChipCallable(on_chip)), w3.register(nothing)

    def graph(orch, args, cfg) -> None:
        with pytest.raises(UsageError, match=r"'on_chip' is a chip callable.*submit_next_level"):
            orch.submit_sub(chip)
        with pytest.raises(UsageError, match=r"'nothing' is a Python function.*submit_sub"):
            orch.submit_next_level(sub, TaskArgs(), cfg)

    w3.run(graph)


def test_a_chip_callable_where_there_is_no_chip(world) -> None:
    with pytest.raises(UsageError, match="on_chip is for chips, but this Worker has none"):
        world.worker.register(ChipCallable(on_chip))
    refused(
        world,
        lambda orch: orch.submit_next_level(world.mark, TaskArgs()),
        "child|Python function",
    )


def test_an_unknown_child(world) -> None:
    refused(world, lambda orch: orch.submit_sub(world.nothing, worker=2), "2")
    refused(world, lambda orch: orch.submit_sub(world.nothing, worker=-2), "worker")
    refused(world, lambda orch: orch.submit_sub(world.nothing, worker="a"), "worker")


def test_an_unknown_child_in_a_group(world) -> None:
    members = [TaskArgs(), TaskArgs()]
    for workers in ([0, 2], [0, -1], [0, "a"], 7):
        refused(
            world,
            lambda orch, workers=workers: orch.submit_sub_group(
                world.nothing, members, workers=workers
            ),
            "worker",
        )


def test_a_group_larger_than_the_children(world) -> None:
    refused(world, lambda orch: orch.submit_sub_group(world.nothing, [TaskArgs()] * 3), "3")
    refused(world, lambda orch: orch.submit_sub_group(world.nothing, []), "member|empty|group")
    refused(
        world,
        lambda orch: orch.submit_sub_group(world.nothing, [TaskArgs()] * 2, workers=[0, 0]),
        "0",
    )
    refused(
        world, lambda orch: orch.submit_sub_group(world.nothing, [TaskArgs()] * 2, workers=[0]), "1"
    )


def test_a_tensor_that_is_not_in_shared_memory(world) -> None:
    one = given((np.zeros(1000), TensorArgType.OUTPUT))
    many = given((np.zeros((4, 8)), TensorArgType.OUTPUT))
    refused(world, lambda orch: orch.submit_sub(world.mark, one), "shared_array")
    refused(world, lambda orch: orch.submit_sub_many(world.mark, many), "shared_array")


def test_a_pointer_that_is_invalid_in_the_child_is_named(world) -> None:
    """A submit accepts the pointer, because it may be a key that only orders tasks."""
    private = np.zeros(8)
    pointer = ContinuousTensor.from_pointer(private.ctypes.data, (8,), "float64")
    args = given((pointer, TensorArgType.OUTPUT), scalars=(1,))
    with pytest.raises(TaskFailedError, match=r"not in shared memory.*shared_array"):
        world.worker.run(lambda orch, _, cfg: orch.submit_sub(world.mark, args))
    still_works(world)


def test_a_tensor_of_a_heap_ring_that_was_freed(world) -> None:
    kept: list[Any] = []

    def graph(orch, args, cfg) -> None:
        with orch.scope():
            kept.append(orch.alloc((8,), "float32"))

    world.worker.run(graph)

    refused(
        world,
        lambda orch: orch.submit_sub(world.mark, given((kept[0], TensorArgType.INOUT))),
        "name a buffer only before the scope that allocated it ends",
    )


def test_a_tensor_that_is_resized_while_a_task_uses_it(world, tmp_path) -> None:
    go = tmp_path / "go"

    def wait_and_mark(args) -> None:
        while not go.exists():
            time.sleep(0.001)
        args.tensor(0)[:] = 6

    array = world.worker.shared_array(8)
    handle = world.worker.register(wait_and_mark)

    def graph(orch, _, cfg) -> None:
        args = given((array, TensorArgType.OUTPUT))
        with pytest.raises(ValueError, match="resize"):
            array.resize(16)
        orch.submit_sub(handle, args)
        del args
        with pytest.raises(ValueError, match="resize"):
            array.resize(16)
        with pytest.raises(ValueError, match="resize"):
            array.resize(16, refcheck=False)
        go.touch()

    world.worker.run(graph)
    assert (array == 6).all()


def test_memory_of_a_chip_that_is_freed_while_tasks_may_use_it(make, tmp_path) -> None:
    go = tmp_path / "go"

    def waiting(rt: Any, out: Out) -> None:
        while not go.exists():
            time.sleep(0.001)

    worker = make(device_ids=[0], **CHIPS)
    chip = ChipCallable(waiting)
    worker.register(chip)
    address = worker.malloc(32)
    tensor = ContinuousTensor.from_pointer(address, (8,), "float32", child_memory=True)
    with worker.session() as s:
        handle = s.submit(chip, tensor)
        name = rf"task 0 \(waiting, {__file__}:\d+\)"
        with pytest.raises(UsageError, match=f"while {name}, which names it, has not ended; wait"):
            worker.free(address)
        with pytest.raises(TimeoutError, match=f"^{name} has not ended within 0.01 s$"):
            handle.result(0.01)
        go.touch()
        handle.wait()
        worker.free(address)


def test_an_object_that_is_no_task_handle(world, make) -> None:
    other = make(num_sub_workers=1)
    with other.session() as s:
        foreign = s.submit(copy, other.shared_array(8), other.shared_array(8))
    with world.worker.session() as s:
        for one in ("x", None, foreign):
            with pytest.raises(UsageError, match="pass task handles of this Worker"):
                s.submit(copy, world.out[0], world.out[1], after=[one])
            with pytest.raises(UsageError, match="pass task handles of this Worker"):
                s.submit_group(copy, [(world.out[0], world.out[1])], after=[one])
    assert world.worker.statistics()["submitted"] == 0
    still_works(world)


def test_a_tensor_stays_while_a_task_needs_it(world) -> None:
    """The program drops its reference at once; the memory must live as long as tasks need it."""
    results = world.worker.shared_array((200, 1000))

    def graph(orch, _, cfg) -> None:
        for number in range(200):
            source = world.worker.shared_array(1000)
            source[:] = number
            args = copy.arguments([source, results[number]])[0]
            del source
            orch.submit_sub(handle, args)
            del args

    handle = world.worker.register(copy)
    world.worker.run(graph)
    assert (results == np.arange(200)[:, None]).all()


def test_a_tag_that_is_missing(world) -> None:
    with world.worker.session() as s:
        with pytest.raises(UsageError, match="annotate the parameter In, Out or InOut"):
            s.submit(untyped, world.out)
        with pytest.raises(UsageError, match="has no @task"):
            s.submit(world.mark, world.out)
    for tag in (None, "what", 7):
        with pytest.raises(
            UsageError, match=r"the tag of tensor 0 is .*; pass TensorArgType.INPUT"
        ):
            TaskArgs().add_tensor(world.out, tag)
    still_works(world)


def test_a_scalar_before_a_tensor(world) -> None:
    args = TaskArgs()
    args.add_scalar(1)
    with pytest.raises(UsageError, match="tensor"):
        args.add_tensor(world.out, TensorArgType.INPUT)
    assert (args.tensor_count, args.scalar_count) == (0, 1)


def test_a_diagnostic_without_an_output_prefix(make) -> None:
    w3 = make(num_sub_workers=1, device_ids=[0], **CHIPS)
    chip = w3.register(ChipCallable(on_chip))
    with pytest.raises(UsageError, match="needs an output_prefix"):
        CallConfig(enable_dep_gen=1)
    config = CallConfig()
    config.enable_dep_gen = 1
    with pytest.raises(UsageError, match="needs an output_prefix"):
        w3.run(lambda orch, args, cfg: None, config=config)
    out = w3.shared_array(4)

    def graph(orch, args, cfg) -> None:
        made = given((out, TensorArgType.OUTPUT))
        with pytest.raises(UsageError, match="needs an output_prefix"):
            orch.submit_next_level(chip, made, config)

    w3.run(graph)


def test_submit_outside_a_run(world) -> None:
    kept: list[Any] = []
    world.worker.run(lambda orch, args, cfg: kept.append(orch))
    with pytest.raises(UsageError, match="outside"):
        kept[0].submit_sub(world.nothing)
    session = world.worker.session()
    for submit in (session.submit, session.submit_group):
        with pytest.raises(UsageError, match="inside its block"):
            submit(copy, "whatever")  # the value is ignored
    with session as s:
        pass
    with pytest.raises(UsageError, match="inside its block"):
        s.submit(copy, world.out[0], world.out[1])
    still_works(world)


def test_a_run_inside_a_run(world) -> None:
    refused(world, lambda orch: world.worker.run(lambda *_: None, hazards="full"), "hazards")
    refused(world, lambda orch: world.worker.unregister(world.mark), "during a run")


def test_use_after_close(world) -> None:
    kept: list[Any] = []
    world.worker.run(lambda orch, args, cfg: kept.append(orch))
    world.worker.close()
    for use in (
        lambda: world.worker.run(lambda *_: None),
        world.worker.init,
        world.worker.__enter__,
        world.worker.session,
        world.worker.statistics,
        lambda: world.worker.register(mark),
        lambda: world.worker.unregister(world.mark),
        lambda: world.worker.shared_array(4),
        lambda: world.worker.add_worker(Worker(level=3)),
        lambda: world.worker.malloc(4),
    ):
        with pytest.raises(WorkerClosedError, match="closed"):
            use()
    with pytest.raises(UsageError):
        kept[0].submit_sub(world.nothing)


def test_adding_workers(make) -> None:
    w4 = make(level=4)
    started = make(num_sub_workers=1)
    started.init()
    with pytest.raises(UsageError, match="has been started"):
        w4.add_worker(started)
    closed = make(num_sub_workers=1)
    closed.close()
    with pytest.raises(WorkerClosedError, match="closed"):
        w4.add_worker(closed)
    with pytest.raises(UsageError, match="is not a Worker"):
        w4.add_worker("w3")
    with pytest.raises(UsageError, match="level 4 cannot be a child of a Worker of level 4"):
        w4.add_worker(make(level=4))
    w3 = make(num_sub_workers=1)
    assert w4.add_worker(w3) == 0
    with pytest.raises(UsageError, match="child already"):
        w4.add_worker(w3)
    with pytest.raises(UsageError, match="child of another"):
        w3.init()
    with_arrays = make(num_sub_workers=1)
    array = with_arrays.shared_array(4)
    with pytest.raises(UsageError, match="shared arrays"):
        w4.add_worker(with_arrays)
    del array
    with pytest.raises(UsageError, match=r"remove_worker was called before init\(\)"):
        w4.remove_worker(0)
    w4.init()
    with pytest.raises(UsageError, match=r"without host= or hosts= was added after init\(\)"):
        w4.add_worker(make(num_sub_workers=1))
    with pytest.raises(CapacityError, match=r"0 places .* none is free; .* spare_workers$"):
        w4.add_worker(make(num_sub_workers=1, host="tcp://host1:7700"))
    with pytest.raises(UsageError, match=r"worker 0 is not a Worker on another host"):
        w4.remove_worker(0)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"level": 4, "device_ids": [0]}, "to a Worker of level 4; chips"),
        ({"level": 2}, "level 3"),
        ({"level": "3"}, "level '3'"),
        ({"level": 7}, r"level 7 is not valid.*3 \(host\).*6 \(cluster\)"),
        ({"level": 3, "num_sub_workers": -1}, "num_sub_workers is -1"),
        ({"level": 3, "num_sub_workers": 1.5}, "num_sub_workers is 1.5"),
        ({"level": 3, "device_ids": [0, 0]}, "names a device twice"),
        ({"level": 3, "device_ids": [-1]}, "not a device number"),
        ({"level": 3, "device_ids": 0}, "pass a list"),
        ({"level": 3, "platform": 2}, "platform is 2; .*processes that run .* is num_sub_workers"),
        ({"level": 3, "child_mode": "THREAD"}, "processes of their own"),
        ({"level": 3, "child_mode": None}, "processes of their own"),
    ],
)
def test_an_invalid_shape(settings, message) -> None:
    with pytest.raises(UsageError, match=message):
        Worker(**settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"on_worker_death": "cry"}, "fail, restart or reroute"),
        ({"start_method": "thread"}, "fork or spawn"),
        ({"heap_ring_sise": 4}, "did you mean 'heap_ring_size'"),
        ({"child_window": 0}, "from 1 to 256"),
    ],
)
def test_an_invalid_setting(settings, message) -> None:
    with pytest.raises(ConfigError, match=message):
        Worker(level=3, **settings)


def test_a_misspelt_parameter_of_a_worker_is_named() -> None:
    with pytest.raises(ConfigError, match="'num_sub_worker'; did you mean 'num_sub_workers'"):
        Worker(level=3, num_sub_worker=2)
    for name in ("max_workers", "n_jobs", "num_cpus"):
        with pytest.raises(ConfigError, match=f"'{name}'; did you mean 'num_sub_workers'"):
            Worker(level=3, **{name: 2})
    with pytest.raises(ConfigError, match="unknown setting 'something_else'"):
        Worker(level=3, something_else=2)


def test_only_handles_are_awaited(world) -> None:
    for wrong in (3, "handles", [1], [None]):
        with pytest.raises(UsageError, match="pass a list of the handles that submit returns"):
            world.worker.as_completed(wrong)


def test_a_callable_that_cannot_be_registered(world) -> None:
    world.worker.init()
    stream = sys.stdout
    with pytest.raises(UsageError, match="cannot be serialised"):
        world.worker.register(lambda: stream, serialise=True)
    with pytest.raises(UsageError, match=r"cannot be serialised.*before init\(\)"):
        world.worker.register(lambda: stream)
    with pytest.raises(UsageError, match=r"'\.pkg:fn' is not an absolute import path"):
        world.worker.register(".pkg:fn")
    with pytest.raises(UsageError, match="cannot be registered"):
        world.worker.register(7)
    with pytest.raises(UsageError, match=r"cannot be registered: it is a kernel.*write @task"):
        world.worker.register(CoreCallable(lambda x: None, "aiv"))
    still_works(world)


def test_invalid_hazards_and_timeouts(world) -> None:
    for use in (world.worker.session, partial(world.worker.run, lambda *_: None)):
        with pytest.raises(UsageError, match="'full', 'check'; did you mean 'check'"):
            use(hazards="chek")
        with pytest.raises(UsageError, match="hazards is True; pass one of 'raw', 'full', 'check'"):
            use(hazards=True)
    with pytest.raises(UsageError, match=r"pass one of 'raw', 'full'$"):
        world.worker.capture(lambda *_: None, hazards="check")
    refused(world, lambda orch: orch.submit_sub(world.nothing, timeout_s=0), "timeout_s")
    refused(world, lambda orch: orch.submit_sub(world.nothing, retries=-1), "retries")


def test_a_task_with_retries_that_changes_private_memory_is_refused(make) -> None:
    worker = make(num_sub_workers=1)
    handle = worker.register(lambda args: None)
    private = np.zeros(1000)

    def graph(orch, args, cfg) -> None:
        for address in (0x1000, private.ctypes.data):
            tensor = ContinuousTensor.from_pointer(address, (1000,), "float64")
            made = given((tensor, TensorArgType.INOUT))
            with pytest.raises(UsageError, match=r"not in shared memory.*shared_array"):
                orch.submit_sub(handle, made, retries=1)
            with pytest.raises(UsageError, match=r"not in shared memory.*shared_array"):
                orch.submit_sub_group(handle, [made], retries=1)
            orch.submit_sub(handle, made)

    worker.run(graph)


def test_the_error_for_data_larger_than_a_queue_names_the_setting(make) -> None:
    worker = make(num_sub_workers=1, child_queue_bytes=4096)
    handle = worker.register(nothing)
    large = given(scalars=tuple(range(1000)))
    with pytest.raises(CapacityError, match="set a larger child_queue_bytes"):
        worker.run(lambda orch, args, config: orch.submit_sub(handle, large))
    worker.run(lambda orch, args, config: orch.submit_sub(handle))


def test_unmapped_shared_memory_is_not_accepted_any_more(make) -> None:
    first, worker = Worker(3, num_sub_workers=1), make(num_sub_workers=1)
    handle = worker.register(lambda args: None)
    array = first.shared_array(1000)
    pointer = ContinuousTensor.from_pointer(array.ctypes.data, array.shape, "float32")
    made = given((pointer, TensorArgType.INOUT))
    worker.run(lambda orch, args, cfg: orch.submit_sub(handle, made, retries=1))
    del array
    first.close()
    del first
    gc.collect()
    with pytest.raises(UsageError, match="no memory at this address"):
        worker.run(lambda orch, args, cfg: orch.submit_sub(handle, made, retries=1))
