"""A failed start and its repetition, and a fork of the program that tries to use the Worker."""

from __future__ import annotations

import gc
import os
import signal
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lost_children import await_count, child_pids, kill
from task_arguments import given

from pto_core import Out, TensorArgType, Worker, task
from pto_core.errors import CapacityError, ChildStartError, PtoError
from pto_core.interfaces import API_VERSION, Health
from pto_core.worker.processes import ChildProcesses
from pto_core.worker.worker_node import WorkerNode


@task
def write(value: int, out: Out) -> None:
    out[:] = value


def fill(args: Any) -> None:
    args.tensor(0)[:] = 7


def nothing() -> None: ...


def still_works(worker: Worker, array: Any) -> None:
    with worker.session() as s:
        s.submit(write, 5, array)
    assert (array == 5).all()


def failing(error: BaseException) -> Callable[..., Any]:
    def start(self: Any, plans: Any, is_cancelled: Any) -> Any:
        raise error

    return start


# Invariant: A start that fails or is interrupted leaves the Worker and its arrays as before and can
# be repeated. No memory, descriptor or process is left.
@pytest.mark.parametrize("error", [ChildStartError, KeyboardInterrupt])
def test_init_can_be_tried_again_and_arrays_made_before_live_on(make, monkeypatch, error) -> None:
    worker = make(num_sub_workers=1)
    early = worker.shared_array(8)
    early[:] = 1
    with monkeypatch.context() as patched:
        patched.setattr(ChildProcesses, "start", failing(error("no luck")))
        with pytest.raises(error):
            worker.init()
    assert (early == 1).all()
    late = worker.shared_array(8)
    still_works(worker, early)
    still_works(worker, late)


def test_a_child_that_cannot_start_leaves_the_worker_as_it_was(make, monkeypatch) -> None:
    w4 = make(level=4)
    w3 = make(num_sub_workers=1)
    w4.add_worker(w3)

    def start_as_child(node: WorkerNode, path: str) -> None:
        raise ValueError("not today")

    array = w4.shared_array(8)
    before = mapped()
    with monkeypatch.context() as patched:
        patched.setattr(WorkerNode, "start_as_child", start_as_child)
        with pytest.raises(ChildStartError, match="not today"):
            w4.init()
    assert mapped() == before, "the progress table or a heap ring is still mapped"
    with w4.session() as s:
        assert not s.orchestrator.alloc((4,), "float32").numpy().any()
    assert (array == 0).all()


def mapped() -> int:
    """Return the number of mappings of Workers in this process."""
    gc.collect()
    return sum("pto-worker" in line for line in Path("/proc/self/maps").open())


def test_after_a_worker_only_the_memory_of_its_arrays_remains() -> None:
    before = mapped()
    worker = Worker(3, num_sub_workers=1, heap_ring_size=1 << 24)
    array = worker.shared_array(8)
    still_works(worker, array)
    assert mapped() == before + 3  # rings and connections, values, arrays
    worker.close()
    assert (array == 5).all()
    del array
    assert mapped() == before
    array = Worker(3).shared_array(8)
    del worker
    assert mapped() == before + 1
    del array
    assert mapped() == before


def in_a_fork(body: Callable[[], None]) -> str:
    """Run ``body`` in a fork of this program; return its exception as text."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        signal.alarm(120)
        try:
            body()
            os.write(writing, b"nothing was raised")
        except PtoError as error:
            os.write(writing, f"{type(error).__name__}: {error}".encode())
        except BaseException:  # noqa: BLE001 - the test reports it
            os.write(writing, traceback.format_exc().encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as opened:
        text = opened.read()
    assert os.waitpid(pid, 0)[1] == 0
    return text


# Invariant: A fork of the program cannot use the Worker, and its exit ends no part of the Worker.
def test_a_fork_of_the_program_cannot_use_the_worker(make) -> None:
    worker = make(num_sub_workers=1)
    handle = worker.register(nothing)
    array = worker.shared_array(8)
    worker.init()
    captured: list[Any] = [worker.capture(lambda orch, args, cfg: orch.submit_sub(handle))]
    uses: list[Callable[[], Any]] = [
        lambda: worker.run(lambda orch, args, cfg: orch.submit_sub(handle)),
        lambda: worker.session().__enter__(),
        lambda: worker.replay(captured[0]),
        worker.init,
        worker.statistics,
        lambda: worker.register("math:sqrt"),
        lambda: worker.shared_array(4),
    ]
    for has_run in (False, True):
        for use in uses:
            text = in_a_fork(use)
            assert text.startswith("UsageError: "), text
            assert str(os.getpid()) in text
        assert in_a_fork(worker.close) == "nothing was raised"
        if not has_run:
            still_works(worker, array)
    still_works(worker, array)


# Invariant: Every child that accepts tasks knows every registered callable, including a child that
# was restarting during the registration.
def test_a_callable_that_is_registered_during_a_restart_reaches_the_child(
    make, monkeypatch
) -> None:
    worker = make(num_sub_workers=1)
    array = worker.shared_array(8)
    still_works(worker, array)
    replace, handles = ChildProcesses.replace, []

    def register_meanwhile(processes: ChildProcesses, index: int, plan: Any) -> None:
        handles.append(worker.register(fill, serialise=True))
        replace(processes, index, plan)

    monkeypatch.setattr(ChildProcesses, "replace", register_meanwhile)
    kill(*child_pids())
    assert await_count(worker, "restarts", 1) == 1
    args = given((array, TensorArgType.OUTPUT))
    worker.run(lambda orch, _, cfg: orch.submit_sub(handles[0], args))
    assert (array == 7).all()
    worker.unregister(handles[0])


def test_too_few_descriptors_are_reported_and_no_child_is_left(make, monkeypatch) -> None:
    """The child already runs when opening its pidfd fails, so it must be ended."""
    worker = make(num_sub_workers=2)
    opened, real = [], os.pidfd_open

    def refuse_second_child(pid: int, flags: int = 0) -> int:
        if pid != os.getpid():
            opened.append(pid)
            if len(opened) == 2:
                raise OSError(24, "Too many open files")
        return real(pid, flags)

    with monkeypatch.context() as patched:
        patched.setattr(os, "pidfd_open", refuse_second_child)
        with pytest.raises(CapacityError, match=r"L3/sub1 cannot be started.*ulimit -n"):
            worker.init()
    for pid in opened:
        with pytest.raises(ChildProcessError):
            os.waitpid(pid, 0)
    still_works(worker, worker.shared_array(8))


class End:
    """An unused end that records its calls."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda *args: self.calls.append(name)


class Ends:
    """A transport in Python that cannot move frames, and its plugin."""

    name, api_version, frame_limit = "ends", API_VERSION, 1 << 16
    capabilities = frozenset({"in_order", "same_addresses"})

    def __init__(self) -> None:
        self.made: list[tuple[End, End]] = []

    def health(self) -> Health:
        return Health(ok=True)

    def connect(self, connection: Any) -> tuple[End, End]:
        self.made.append((End(), End()))
        return self.made[-1]


ends = Ends()


def test_connections_of_children_that_cannot_start_are_abandoned(make, monkeypatch, site) -> None:
    site.install("pto-transport-ends", {"pto.transports": f"ends = {__name__}:ends"})
    ends.made.clear()
    worker = make(num_sub_workers=2, transport="ends")
    monkeypatch.setattr(ChildProcesses, "start", failing(ChildStartError("no luck")))
    with pytest.raises(ChildStartError):
        worker.init()
    assert [end.calls for pair in ends.made for end in pair] == [["abandon"]] * 4
