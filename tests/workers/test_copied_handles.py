"""Handles of callables: copies equal the original, and dead handles are refused at the call."""

from __future__ import annotations

import copy
import os
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from task_arguments import given

from pto_core import CallableHandle, InOut, TaskArgs, TensorArgType, Worker, task
from pto_core.errors import PtoError, UsageError, WorkerClosedError

IN_OUT = TensorArgType.INOUT


def add_one(args: Any) -> None:
    args.tensor(0)[:] += 1


@task
def add_two(x: InOut) -> None:
    x += 2


COPIES = {
    "original": lambda handle: handle,
    "pickle": lambda handle: pickle.loads(pickle.dumps(handle)),
}


@pytest.mark.parametrize("copied", COPIES.values(), ids=COPIES)
def test_a_copy_of_a_handle_can_be_used_where_the_original_can(make: Any, copied: Any) -> None:
    worker = make(num_sub_workers=2)
    handle, typed = copied(worker.register(add_one)), copied(worker.register(add_two))
    rows = worker.shared_array((2, 8))
    members = [given((row, IN_OUT)) for row in rows]

    def graph(orch: Any, args: Any, config: Any) -> None:
        orch.submit_sub(handle, given((rows, IN_OUT)))
        orch.submit_sub_group(handle, members)
        orch.submit_sub_many(handle, given((rows, IN_OUT)))

    worker.run(graph)
    assert (rows == 3).all()
    worker.replay(worker.capture(graph))
    assert (rows == 6).all()
    with worker.session() as session:
        session.submit(typed, rows)
        session.submit_group(typed, [(row,) for row in rows])
    assert (rows == 10).all()
    worker.unregister(handle)
    assert_is_dead(worker, handle, typed)


def assert_is_dead(worker: Worker, handle: CallableHandle, live: CallableHandle) -> None:
    for use in uses_of(handle):
        with pytest.raises(UsageError, match="'add_one' is dead"), worker.session() as session:
            use(session)
    with pytest.raises(UsageError, match=r"'add_one' is dead: it was unregistered"):
        worker.unregister(handle)
    row = worker.shared_array(8)
    with worker.session() as session:
        session.submit(live, row)
    assert (row == 2).all()


def uses_of(handle: Any) -> list[Callable[[Any], Any]]:
    """Return one call for each entry point that accepts a handle."""
    return [
        lambda session: session.submit(handle),
        lambda session: session.submit_group(handle, [()]),
        lambda session: session.orchestrator.submit_sub(handle),
        lambda session: session.orchestrator.submit_sub_group(handle, [TaskArgs()]),
        lambda session: session.orchestrator.submit_sub_many(handle, TaskArgs()),
        lambda session: session.orchestrator.submit_next_level(handle, TaskArgs()),
        lambda session: session.orchestrator.submit_next_level_group(handle, [TaskArgs()]),
        lambda session: session.orchestrator.submit_next_level_many(handle, TaskArgs()),
    ]


@pytest.mark.parametrize("copied", COPIES.values(), ids=COPIES)
def test_copies_and_captures_of_a_dead_handle_are_refused(make: Any, copied: Any) -> None:
    worker = make(num_sub_workers=1)
    original, other = worker.register(add_one), worker.register(add_one)
    row = worker.shared_array(8)
    graph = worker.capture(
        lambda orch, args, config: orch.submit_sub(copied(original), given((row, IN_OUT)))
    )
    dead = copied(original)
    worker.unregister(original)
    assert_is_dead(worker, dead, worker.register(add_two))
    with pytest.raises(UsageError, match=r"'add_one' is dead"):
        worker.capture(lambda orch, args, config: orch.submit_sub(dead))
    with pytest.raises(UsageError, match=r"runs 'add_one', which was unregistered"):
        worker.replay(graph)
    worker.run(lambda orch, args, config: orch.submit_sub(other, given((row, IN_OUT))))
    assert (row == 1).all()


def test_a_task_that_was_submitted_before_does_not_keep_its_handle_alive(make: Any) -> None:
    """The driver caches handles by object; the end of a registration must empty the cache."""
    worker = make(num_sub_workers=1)
    handle = worker.register(add_one)
    row = worker.shared_array(8)
    for _ in range(3):
        worker.run(lambda orch, args, config: orch.submit_sub(handle, given((row, IN_OUT))))
    worker.unregister(handle)
    assert_is_dead(worker, handle, worker.register(add_two))
    assert (row == 3).all()


@pytest.mark.parametrize("copied", COPIES.values(), ids=COPIES)
def test_a_handle_of_a_closed_worker_is_refused(make: Any, copied: Any) -> None:
    worker = make(num_sub_workers=1)
    handle = worker.register(add_one)
    kept: list[Any] = []
    worker.run(lambda orch, args, config: kept.append(orch))
    graph = worker.capture(lambda orch, args, config: orch.submit_sub(handle))
    with worker.session() as session:
        session.submit(worker.register(add_two), worker.shared_array(8))

    def close_and_submit(orch: Any, args: Any, config: Any) -> None:
        worker.close()
        orch.submit_sub(copied(handle))

    with pytest.raises(WorkerClosedError):
        worker.run(close_and_submit)
    with pytest.raises(PtoError):
        kept[0].submit_sub(copied(handle))
    for use in (worker.unregister, lambda _: worker.replay(graph)):
        with pytest.raises(WorkerClosedError, match="closed"):
            use(copied(handle))
    other = make(num_sub_workers=1)
    for use in uses_of(copied(handle)):
        with (
            pytest.raises(UsageError, match="belongs to another Worker"),
            other.session() as session,
        ):
            use(session)
    with pytest.raises(UsageError, match="belongs to another Worker"):
        other.unregister(copied(handle))


def test_a_handle_cannot_be_changed_or_made_by_hand(make: Any) -> None:
    worker = make(num_sub_workers=1)
    handle = worker.register(add_one)
    for name in ("digest", "kind", "namespace", "name", "worker", "registration", "is_alive"):
        with pytest.raises(AttributeError):
            setattr(handle, name, getattr(handle, name, True))
    with pytest.raises(TypeError):
        CallableHandle(*handle.__getstate__())
    with pytest.raises(TypeError):
        handle.__init__(*handle.__getstate__())


def test_an_altered_pickle_of_a_handle_is_identified_by_its_registration(make: Any) -> None:
    """The other members of a handle are only information; they do not determine the callable."""
    worker = make(num_sub_workers=1)
    handle, other = worker.register(add_one), worker.register(add_two)
    row = worker.shared_array(8)

    def altered(**parts: Any) -> CallableHandle:
        names = ("digest", "kind", "namespace", "name", "worker", "registration")
        state = dict(zip(names, handle.__getstate__(), strict=True))
        made = CallableHandle.__new__(CallableHandle)
        made.__setstate__(tuple({**state, **parts}.values()))
        return made

    same = altered(digest=other.digest, name="something else")
    worker.run(lambda orch, args, config: orch.submit_sub(same, given((row, IN_OUT))))
    assert (row == 1).all()
    for parts, message in (
        ({"registration": bytes(16)}, "is dead"),
        ({"registration": bytes(16), "worker": bytes(16)}, "belongs to another Worker"),
    ):
        for use in uses_of(altered(**parts)):
            with pytest.raises(UsageError, match=message), worker.session() as session:
                use(session)


def test_workers_of_forked_processes_have_other_identities(make: Any) -> None:
    """An identity must not be a counter, which could have the same value in two processes."""
    mine = make(num_sub_workers=1).register(add_one)
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.write(write_end, pickle.dumps(Worker(3, num_sub_workers=1).register(add_one)))
            status = 0
        finally:
            os._exit(status)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as stream:
        theirs = pickle.load(stream)
    assert os.waitpid(child, 0)[1] == 0
    next_one = make(num_sub_workers=1)
    assert len({mine.worker, theirs.worker, next_one.register(add_one).worker}) == 3
    with pytest.raises(UsageError, match="belongs to another Worker"):
        next_one.run(lambda orch, args, config: orch.submit_sub(theirs))


leaf_of: list[Any] = []
"""The handles of the nested Worker in the test below. Its process inherits this global variable."""


def submit_leaf(orch: Any, args: Any, config: Any) -> None:
    """Use, in a forked process, a handle of the Worker that was created before the fork."""
    orch.submit_sub(leaf_of[0], given((args.tensor(0), IN_OUT)))


def test_a_handle_of_a_nested_worker_works_in_its_process(make: Any, monkeypatch: Any) -> None:
    pod, host = make(level=4), make(num_sub_workers=1)
    pod.add_worker(host)
    handle = host.register(add_one)
    monkeypatch.setitem(globals(), "leaf_of", [copy.copy(handle)])
    graph = pod.register(submit_leaf)
    row = pod.shared_array(8)

    def submit(orch: Any, args: Any, config: Any) -> None:
        orch.submit_next_level(graph, given((row, IN_OUT)), config)
        with pytest.raises(UsageError, match="belongs to another Worker"):
            orch.submit_next_level(handle, given((row, IN_OUT)), config)

    pod.run(submit)
    assert (row == 1).all()
