"""Failures in children: the errors, the tasks that still run, and the next run."""

from __future__ import annotations

import os
import pickle
import signal
import threading
import time
from typing import Any

import numpy as np
import psutil
import pytest
from lost_children import await_count, check_children
from task_arguments import given

from pto_core import (
    ChipCallable,
    DataType,
    In,
    InOut,
    Out,
    TensorArgType,
    Worker,
    kernel,
    task,
)
from pto_core.errors import (
    CapacityError,
    ChildDiedError,
    ChildHungError,
    DeadlockError,
    TaskFailedError,
    TaskPoisonedError,
)
from pto_core.worker.processes.parking import fork_lock


@task
def write(value: int, out: Out) -> None:
    out[:] = value


@task
def add_one(x: In, out: Out) -> None:
    out[:] = x + 1


@task
def fail(out: Out) -> None:
    raise ValueError("no luck today")


@task
def die(x: InOut) -> None:
    x += 100
    os.kill(os.getpid(), signal.SIGKILL)


@task
def leave(out: Out) -> None:
    os._exit(7)


@task
def hang(out: Out) -> None:
    while True:
        time.sleep(1)


def line_of(text: str) -> int:
    """Return the number of the only line of this file that ends with the text."""
    with open(__file__) as source:
        lines = [number for number, line in enumerate(source, 1) if line.rstrip().endswith(text)]
    (found,) = lines
    return found


def still_works(worker: Any) -> None:
    out = worker.shared_array((4, 8))
    with worker.session() as s:
        for i, row in enumerate(out):
            s.submit(write, i, row)
    np.testing.assert_array_equal(out[:, 0], range(4))


def kind_of(error: BaseException | None) -> type:
    """Return the class of an error, without the class of the program that it is too."""
    return TaskFailedError if isinstance(error, TaskFailedError) else type(error)


def test_a_failed_task_poisons_exactly_its_descendants(make) -> None:
    worker = make(num_sub_workers=2)
    rows = worker.shared_array((6, 8))
    with pytest.raises(TaskFailedError) as caught, worker.session() as s:
        handles = [
            s.submit(write, 1, rows[0]),
            s.submit(fail, rows[1]),  # the task that fails
            s.submit(add_one, rows[1], rows[2]),
            s.submit(add_one, rows[2], rows[3]),
            s.submit(add_one, rows[0], rows[4]),
            s.submit(write, 5, rows[1]),
            s.submit(add_one, rows[1], rows[5]),
        ]
    error = caught.value
    assert isinstance(error.__cause__, ValueError)
    assert (error.task, error.callable) == (1, "fail")
    assert (error.file, error.line) == (__file__, line_of("# the task that fails"))
    assert error.path in ("L3/sub0", "L3/sub1")
    assert 'raise ValueError("no luck today")' in error.remote_traceback
    assert "pto_core" not in error.remote_traceback
    assert [(one.task, one.callable, one.root) for one in error.poisoned] == [
        (2, "add_one", 1),
        (3, "add_one", 1),
    ]
    assert f"{error.path}: ValueError: no luck today, in task 1 (fail, " in error.message
    assert "2 tasks did not run because of that: task 2 (add_one, " in error.message
    np.testing.assert_array_equal(rows[:, 0], [1, 5, 0, 0, 2, 6])
    assert [kind_of(handle.exception()) for handle in handles] == [
        type(None),
        TaskFailedError,
        TaskPoisonedError,
        TaskPoisonedError,
        *[type(None)] * 3,
    ]
    with pytest.raises(TaskPoisonedError) as poisoned:
        handles[3].result()
    assert isinstance(poisoned.value.__cause__, TaskFailedError)
    root = f"task 1 (fail, {error.file}:{error.line})"
    assert root in error.message
    assert str(poisoned.value).startswith(f"task 3 (add_one, {__file__}:")
    assert f") did not run because {root}, on which it depends, failed" in str(poisoned.value)
    assert pickle.loads(pickle.dumps(error)).poisoned == error.poisoned
    still_works(worker)


def test_the_first_failure_is_raised_and_the_others_are_attached(make) -> None:
    worker = make(num_sub_workers=1)
    rows = worker.shared_array((3, 8))
    with pytest.raises(TaskFailedError) as caught, worker.session() as s:  # noqa: PT012
        for row in rows:
            s.submit(fail, row)
    assert caught.value.task == 0
    assert [one.task for one in caught.value.failures] == [1, 2]
    assert "2 other tasks failed too" in caught.value.message
    still_works(worker)


def test_the_exception_of_a_graph_is_raised_and_unsent_tasks_do_not_run(make) -> None:
    worker = make(num_sub_workers=1)
    rows = worker.shared_array((2, 8))
    handles: list[Any] = []
    with pytest.raises(ZeroDivisionError), worker.session() as s:  # noqa: PT012
        handles.append(s.submit(write, 1, rows[0]))
        raise ZeroDivisionError
    assert handles[0].cancelled() or handles[0].exception() is None
    still_works(worker)


@pytest.mark.parametrize(
    ("task_", "signal_", "code", "message"),
    [
        (die, signal.SIGKILL, None, "was ended by SIGKILL"),
        (leave, None, 7, "ended by itself with code 7"),
    ],
)
@pytest.mark.parametrize("policy", ["fail", "restart"])
def test_a_child_that_dies_is_named_and_replaced(
    make, task_, signal_, code, message, policy
) -> None:
    """Check the error and its delay. One of three attempts is in time: the machine may be busy."""
    for _ in range(3):
        worker = make(num_sub_workers=2, on_worker_death=policy)
        took_s = seconds_of_a_death(worker, task_, (signal_, code), message)
        still_works(worker)
        assert await_count(worker, "restarts", 1) == 1
        worker.close()
        if took_s < 1:
            return
    pytest.fail("each error took a second or more")


def seconds_of_a_death(worker: Any, task_: Any, how: tuple[Any, Any], message: str) -> float:
    """Run a task that kills its child. Check the error; return the seconds until the run failed."""
    rows = worker.shared_array((3, 8))
    worker.init()
    began = time.monotonic()
    with (  # noqa: PT012
        pytest.raises(ChildDiedError, match=message) as caught,
        worker.session() as s,
    ):
        s.submit(task_, rows[0])
        s.submit(add_one, rows[0], rows[1])
        s.submit(write, 3, rows[2])
    took_s = time.monotonic() - began
    error = caught.value
    assert (error.signal, error.exit_code) == how
    assert (error.callable, error.task) == (task_.name, 0)
    assert error.path in ("L3/sub0", "L3/sub1")
    assert error.path in error.message
    assert [one.task for one in error.poisoned] == [1]
    assert rows[2, 0] == 3
    return took_s


def test_a_hung_child_is_ended_at_its_deadline(make) -> None:
    """No attempt may end too early, and one of three is in time: the machine may be busy."""
    for _ in range(3):
        worker = make(num_sub_workers=2)
        took_s = seconds_of_a_hung_child(worker)
        still_works(worker)
        worker.close()
        assert took_s >= 0.3
        if took_s < 1.3:
            return
    pytest.fail("each child was ended a second or more after its deadline")


def seconds_of_a_hung_child(worker: Any) -> float:
    """Run a task that hangs. Check the error, and return the seconds until the run failed."""
    rows = worker.shared_array((3, 8))
    worker.init()
    began = time.monotonic()
    with pytest.raises(ChildHungError) as caught, worker.session() as s:  # noqa: PT012
        s.submit(hang, rows[0], timeout_s=0.3)
        s.submit(write, 2, rows[1])
    took_s = time.monotonic() - began
    assert isinstance(caught.value, TimeoutError)
    assert caught.value.timeout_s == 0.3
    assert "did not end within its time limit of 0.3 s" in caught.value.message
    assert rows[1, 0] == 2
    return took_s


def test_the_time_of_a_task_in_a_queue_counts_from_its_begin(make) -> None:
    """Meanwhile, another task with a time limit ends on another child."""
    worker = make(num_sub_workers=2)
    rows = worker.shared_array((3, 8))

    @task
    def take(seconds: float, out: Out) -> None:
        time.sleep(seconds)
        out[:] = 1

    with worker.session() as s:
        s.submit(take, 2.3, rows[0], worker=0, timeout_s=60)
        s.submit(take, 0.3, rows[1], worker=0, timeout_s=2)
        s.submit(take, 0.0, rows[2], worker=1, timeout_s=60)
    assert rows.all()


def test_the_setting_limits_every_task(make) -> None:
    worker = make(num_sub_workers=1, task_timeout_s=0.2)
    out = worker.shared_array(8)
    with pytest.raises(ChildHungError), worker.session() as s:
        s.submit(hang, out)
    still_works(worker)


def submit_inout(orch: Any, handle: Any, array: Any, **options: Any) -> None:
    orch.submit_sub(handle, given((array, TensorArgType.INOUT)), **options)


@pytest.mark.parametrize(("policy", "children"), [("restart", 1), ("reroute", 2)])
def test_a_task_that_is_safe_to_repeat_survives_its_child(make, tmp_path, policy, children) -> None:
    worker = make(num_sub_workers=children, on_worker_death=policy)
    x = worker.shared_array(8)
    x[:] = 5
    marker = tmp_path / "died"

    def die_once(args: Any) -> None:
        array = args.tensor(0)
        array += 1
        if not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    handle = worker.register(die_once)
    worker.run(lambda orch, args, cfg: submit_inout(orch, handle, x, retries=1))
    assert (x == 6).all(), "the changes of the dead child must be undone"
    wanted = 1 if policy == "restart" else 0
    assert await_count(worker, "restarts", wanted) == wanted
    counts = worker.statistics()
    assert counts["deaths"] == 1
    assert counts["snapshot_peak_bytes"] >= x.nbytes
    still_works(worker)


def test_a_failing_task_runs_again_up_to_its_retries(make, tmp_path) -> None:
    worker = make(num_sub_workers=1)
    x = worker.shared_array(8)
    marker = tmp_path / "tries"
    marker.write_text("")

    def flaky(args: Any) -> None:
        array = args.tensor(0)
        array += 1
        marker.write_text(marker.read_text() + "x")
        if len(marker.read_text()) < 3:
            raise RuntimeError("not yet")

    handle = worker.register(flaky)
    x[:] = 5

    worker.run(lambda orch, args, cfg: submit_inout(orch, handle, x, retries=2))
    assert marker.read_text() == "xxx"
    assert (x == 6).all(), "the changes of a failed attempt must be undone"
    marker.write_text("")
    with pytest.raises(TaskFailedError, match="not yet"):
        worker.run(lambda orch, args, cfg: submit_inout(orch, handle, x, retries=1))
    assert marker.read_text() == "xx"
    still_works(worker)


def test_without_a_child_left_tasks_fail(make) -> None:
    worker = make(num_sub_workers=1, on_worker_death="reroute")
    rows = worker.shared_array((2, 8))
    with pytest.raises(ChildDiedError) as caught, worker.session() as s:  # noqa: PT012
        s.submit(die, rows[0])
        s.submit(write, 1, rows[1])
    assert caught.value.task == 0
    with pytest.raises(ChildDiedError), worker.session() as s:
        s.submit(write, 1, rows[1])


def test_a_child_that_is_killed_while_idle_is_replaced(make) -> None:
    worker = make(num_sub_workers=2)
    worker.init()
    for child in psutil.Process().children():
        child.kill()
        child.wait()
    still_works(worker)
    assert await_count(worker, "restarts", 2) == 2


@pytest.mark.parametrize("killed", [1, 2])
def test_a_run_does_not_fail_for_a_child_that_died_before_it(make, killed) -> None:
    worker = make(num_sub_workers=2)
    still_works(worker)
    for child in psutil.Process().children()[:killed]:
        child.kill()
        wait_until_dead(child.pid)
    time.sleep(0.06)
    still_works(worker)
    assert await_count(worker, "restarts", killed) == killed


def test_a_check_of_the_children_does_not_wait_for_a_fork(make) -> None:
    """The forking thread may wait for the driver's own thread, which also makes these checks."""
    worker = make(num_sub_workers=1)
    worker.init()
    (child,) = psutil.Process().children()
    child.kill()
    wait_until_dead(child.pid)
    holding, done = threading.Event(), threading.Event()

    def hold() -> None:
        with fork_lock():
            holding.set()
            done.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    holding.wait()
    check_children(worker)
    assert worker.statistics()["deaths"] == 0
    done.set()
    thread.join()
    assert await_count(worker, "deaths", 1) == 1
    still_works(worker)


def test_a_handle_reports_the_error_after_its_worker_was_deleted() -> None:
    worker = Worker(3, num_sub_workers=1)
    out = worker.shared_array(8)
    with pytest.raises(TaskFailedError), worker.session() as s:
        handle = s.submit(fail, out)
    worker.close()
    del worker, s
    assert isinstance(handle.exception(), TaskFailedError)


def wait_until_dead(pid: int) -> None:
    """Wait until a process is dead, but leave its exit status to the Worker."""
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)


def test_a_child_that_dies_repeatedly_is_no_longer_restarted(make) -> None:
    worker = make(num_sub_workers=1)
    out = worker.shared_array((20, 8))
    with pytest.raises(ChildDiedError) as caught, worker.session() as s:  # noqa: PT012
        for row in out:
            s.submit(leave, row)
    assert len(caught.value.failures) == 19
    assert worker.statistics()["restarts"] < 10


def test_a_task_that_kills_each_child_is_not_repeated_for_ever(make) -> None:
    worker = make(num_sub_workers=1, on_worker_death="restart")
    row = worker.shared_array((8,))
    with pytest.raises(ChildDiedError), worker.session() as s:
        s.submit(leave, row, retries=50)
    assert worker.statistics()["restarts"] == 5


def test_a_full_heap_ring_is_a_proven_deadlock_with_the_setting(make) -> None:
    worker = make(num_sub_workers=1)

    def graph(orch, args, cfg) -> None:
        for _ in range(5):
            orch.alloc((1 << 20,), DataType.FLOAT32)

    with pytest.raises(DeadlockError, match="Set heap_ring_size to at least") as caught:
        worker.run(graph)
    assert caught.value.resource == "heap ring"
    assert caught.value.settings["heap_ring_size"] > 1 << 24
    still_works(worker)


def test_more_than_a_whole_ring_is_refused(make) -> None:
    worker = make(num_sub_workers=1)
    with pytest.raises(CapacityError, match="heap_ring_size"):
        worker.run(lambda orch, args, cfg: orch.alloc((1 << 23,), DataType.FLOAT32))
    still_works(worker)


def test_memory_beyond_the_limit_is_refused_at_the_call(make) -> None:
    worker = make(num_sub_workers=1, shared_memory_limit="1M")
    with pytest.raises(CapacityError, match="shared_memory_limit"):
        worker.shared_array(1 << 20)
    still_works(worker)


def test_a_chip_task_that_fails_names_its_kernel(make) -> None:
    worker = make(device_ids=[0], platform="a2a3sim", runtime="tensormap_and_ringbuffer")
    chip = ChipCallable(on_chip)
    worker.register(chip)
    out = worker.shared_array(8)
    with pytest.raises(TaskFailedError) as caught, worker.session() as s:
        s.submit(chip, out)
    error = caught.value
    assert (error.path, error.callable) == ("L3/chip0", "on_chip")
    assert "bad_kernel" in error.message
    assert "broken kernel" in error.message + error.remote_traceback


@kernel(core="aiv")
def bad_kernel(out: Out) -> None:
    raise ValueError("broken kernel")


def on_chip(rt: Any, out: Out) -> None:
    rt.submit(bad_kernel, out)


def test_a_handle_of_an_earlier_run_still_has_the_error_of_its_task(make) -> None:
    worker = make(num_sub_workers=1)
    rows = worker.shared_array((2, 8))
    handles = []
    with pytest.raises(TaskFailedError), worker.session() as s:  # noqa: PT012
        handles.append(s.submit(fail, rows[0]))
        handles.append(s.submit(add_one, rows[0], rows[1]))
    with pytest.raises(ChildHungError), worker.session() as s:
        handles.append(s.submit(hang, rows[0], timeout_s=0.1))
    still_works(worker)
    found = [handle.exception() for handle in handles]
    kinds = [kind_of(error) for error in found]
    assert kinds == [TaskFailedError, TaskPoisonedError, ChildHungError]
    assert "no luck today, in task 0 (fail, " in found[0].message
    assert isinstance(found[1].__cause__, TaskFailedError)
    assert found[2].timeout_s == 0.1


def test_a_handled_failure_is_not_raised_again(make) -> None:
    worker = make(num_sub_workers=2)
    rows = worker.shared_array((3, 8))
    with worker.session() as s:
        failed = s.submit(fail, rows[0])
        poisoned = s.submit(add_one, rows[0], rows[1])
        assert isinstance(failed.exception(), TaskFailedError)
    with worker.session() as s:  # by its exception, and by the task that it poisoned
        failed = s.submit(fail, rows[0])
        poisoned = s.submit(add_one, rows[0], rows[1])
        with pytest.raises(TaskPoisonedError):
            poisoned.result()
        s.submit(write, 5, rows[2])
    assert (rows[2] == 5).all()

    def graph(orch: Any, _args: Any, _config: Any) -> None:
        args = given((rows[0], TensorArgType.OUTPUT))
        assert orch.submit_sub(worker.register(fail), args).exception() is not None

    worker.run(graph)
    still_works(worker)


def test_an_unhandled_failure_beside_a_handled_one_is_raised(make) -> None:
    worker = make(num_sub_workers=2)
    rows = worker.shared_array((4, 8))
    with pytest.raises(TaskFailedError) as raised, worker.session() as s:  # noqa: PT012
        first = s.submit(fail, rows[0])
        s.submit(add_one, rows[0], rows[1])
        second = s.submit(fail, rows[2])
        third = s.submit(add_one, rows[2], rows[3])
        assert first.exception() is not None
    assert raised.value.task == second.task_slot
    assert raised.value.failures == ()
    assert [one.task for one in raised.value.poisoned] == [third.task_slot]
    with pytest.raises(TaskFailedError) as raised, worker.session() as s:  # the next run
        s.submit(fail, rows[0])
    still_works(worker)
