"""The life cycle of a Worker: close() in signal handlers, and Workers that were added."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psutil
import pytest
from task_arguments import given

from pto_core import TensorArgType
from pto_core.errors import UsageError, WorkerClosedError
from pto_core.worker.life_cycle import LifeCycle, WorkerState

SOON_S = 30.0


def wait_long(args: Any) -> None:
    args.tensor(0)[:] = 1
    time.sleep(100)


@contextmanager
def handler(act: Callable[[], object]) -> Iterator[None]:
    """Install a handler of SIGUSR1 that calls ``act`` once."""
    left = [act]
    before = signal.signal(signal.SIGUSR1, lambda number, frame: left and left.pop()())
    try:
        yield
    finally:
        signal.signal(signal.SIGUSR1, before)


class StopChildren:
    """While ``active`` is set, new children stop at their fork, and the parent calls ``active``."""

    active: Callable[[], None] | None = None


def at_fork_in_parent() -> None:
    if StopChildren.active is not None:
        StopChildren.active()


def at_fork_in_child() -> None:
    if StopChildren.active is not None:
        time.sleep(100)


os.register_at_fork(after_in_parent=at_fork_in_parent, after_in_child=at_fork_in_child)


@pytest.fixture
def children_stop() -> Iterator[None]:
    """Signal this process as soon as it has forked a child; the child does not become ready."""
    StopChildren.active = lambda: signal.raise_signal(signal.SIGUSR1)
    yield
    StopChildren.active = None


def test_a_handler_of_a_signal_closes_a_worker_that_starts(make: Any, children_stop: None) -> None:
    worker = make(num_sub_workers=2)
    begun = time.monotonic()
    with handler(worker.close), pytest.raises(WorkerClosedError, match=r"during init\(\)"):
        worker.init()
    assert time.monotonic() - begun < SOON_S
    assert psutil.Process().children() == []
    assert repr(worker) == "<Worker L3, closed>"


def test_a_handler_that_needs_the_children_while_they_start_is_refused(
    make: Any, children_stop: None
) -> None:
    worker = make(num_sub_workers=1)
    refused: list[UsageError] = []

    def use() -> None:
        StopChildren.active = None
        for call in (worker.init, worker.statistics, lambda: worker.register(wait_long)):
            with pytest.raises(UsageError, match=r"inside init\(\)") as caught:
                call()
            refused.append(caught.value)
        worker.close()

    with handler(use), pytest.raises(WorkerClosedError):
        worker.init()
    assert len(refused) == 3


def test_a_handler_of_a_signal_closes_a_worker_in_a_run(make: Any) -> None:
    worker = make(num_sub_workers=2)
    handle = worker.register(wait_long)
    row = worker.shared_array(8)
    main = threading.get_ident()

    def interrupt() -> None:
        while not row.all():
            time.sleep(0.001)
        signal.pthread_kill(main, signal.SIGUSR1)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with handler(worker.close), pytest.raises(WorkerClosedError):
        worker.run(
            lambda orch, args, config: orch.submit_sub(handle, given((row, TensorArgType.INOUT)))
        )
    thread.join()
    assert psutil.Process().children() == []
    assert repr(worker) == "<Worker L3, closed>"


def at_once(count: int, act: Callable[[], Any]) -> list[Any]:
    """Call ``act`` on several threads at once; return the result or exception of each."""
    results: list[Any] = []
    ready = threading.Barrier(count)

    def call() -> None:
        ready.wait(SOON_S)
        try:
            results.append(act())
        except UsageError as error:
            results.append(error)

    threads = [threading.Thread(target=call) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SOON_S)
    assert len(results) == count
    return results


def test_several_threads_that_open_a_session_start_the_worker_once(make: Any) -> None:
    for _ in range(10):
        worker = make(num_sub_workers=1)

        def enter(worker: Any = worker) -> int:
            with worker.session():
                return len(psutil.Process().children())

        results = at_once(3, enter)
        entered = [one for one in results if isinstance(one, int)]
        assert set(entered) == {1}
        assert all("run" in str(one) for one in results if one not in entered)
        worker.close()


def test_several_threads_that_need_the_memory_of_a_chip_start_it_once(make: Any) -> None:
    worker = make(device_ids=[0], platform="a2a3sim", runtime="tensormap_and_ringbuffer")
    addresses = at_once(3, lambda: worker.malloc(64))
    assert len(set(addresses)) == 3
    assert all(isinstance(address, int) for address in addresses)


def test_registering_inside_a_registration_is_refused(make: Any) -> None:
    worker = make(num_sub_workers=1)

    class Registering:
        def __reduce__(self) -> Any:
            worker.register(wait_long)
            raise AssertionError

        def __call__(self, args: Any) -> None: ...

    with pytest.raises(UsageError, match=r"register\(\) inside a call of register\(\)"):
        worker.register(Registering(), serialise=True)
    worker.register(wait_long)


def test_a_worker_that_was_added_belongs_to_the_one_above(make: Any) -> None:
    pod, host = make(level=4), make(num_sub_workers=1)
    pod.add_worker(host)
    host.register(wait_long)
    with pytest.raises(UsageError, match="call shared_array of the parent Worker"):
        host.shared_array(8)
    with pytest.raises(UsageError, match=r"call init\(\) on the parent Worker"):
        host.init()
    pod.init()
    for call in (host.init, lambda: host.register(wait_long)):
        with pytest.raises(UsageError, match="of its parent Worker has started"):
            call()


def test_a_child_that_is_closed_before_the_start_is_refused(make: Any) -> None:
    pod, host = make(level=4), make(num_sub_workers=1)
    pod.add_worker(host)
    host.close()
    with pytest.raises(WorkerClosedError, match="closed"):
        pod.init()
    assert psutil.Process().children() == []


def test_a_close_during_the_start_leaves_the_children_to_the_starting_thread() -> None:
    life = LifeCycle()
    assert life.begin_start()
    assert not life.begin_close()
    assert not life.end_start(WorkerState.RUNNING)
    assert life.state is WorkerState.CLOSING


def test_a_worker_is_added_to_one_worker() -> None:
    child, first, second = LifeCycle(), LifeCycle(), LifeCycle()
    assert child.add_to(first)
    assert not child.add_to(second)
    child.remove_from_above()
    assert child.add_to(second)
