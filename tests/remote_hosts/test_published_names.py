"""The published names for Workers and functions on other hosts."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from remote_hosts import Agent, counted, running_agent, task_args

from pto_core import (
    RemoteCallable,
    RemoteTaskArgs,
    RemoteTensorRef,
    RemoteWorkerSpec,
    TensorArgType,
    Worker,
)
from pto_core._worker import CallableKind, CallableSpace
from pto_core.errors import ChildStartError, ControlError, UsageError

MODULE = "steps_of_the_other_host"
SOURCE = """
def fill(orch, args, config):
    args.tensor(0)[:] = args.scalar(0)


def double(orch, args, config):
    args.tensor(1)[:] = 2 * args.tensor(0)


number = 5
"""


@pytest.fixture(scope="module")
def host_of_module(keys: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    """Run an agent on a host with a module that the parent's host lacks."""
    folder = tmp_path_factory.mktemp("host")
    (folder / f"{MODULE}.py").write_text(SOURCE)
    with running_agent(folder, "zmq", keys) as made:
        yield made


@pytest.fixture
def host(host_of_module: Agent) -> Iterator[Agent]:
    """Return that agent; the test must leave no session in it."""
    yield host_of_module
    host_of_module.await_no_session()


def spec_of(agent: Agent, **members: Any) -> RemoteWorkerSpec:
    return RemoteWorkerSpec(agent.address, keys=agent.keys, **members)


def filled(*tensors: Any, value: int) -> RemoteTaskArgs:
    made = RemoteTaskArgs()
    for tensor in tensors:
        made.add_tensor(tensor, TensorArgType.OUTPUT_EXISTING)
    made.add_scalar(value)
    return made


@pytest.mark.parametrize("is_late", [False, True])
def test_a_remote_callable_runs_on_its_workers_only(host: Agent, is_late: bool) -> None:
    with Worker(level=4) as worker:
        first = worker.add_remote_worker(spec_of(host, num_sub_workers=1))
        second, third = (worker.add_remote_worker(spec_of(host)) for _ in range(2))
        local = worker.add_worker(Worker(level=3))
        if is_late:
            worker.init()
        fill = worker.register(RemoteCallable(f"{MODULE}:fill"), workers=[first, second])
        only = worker.register(RemoteCallable(f"{MODULE}:fill"), workers=[third])
        assert fill.namespace == CallableSpace.REMOTE_TASK_DISPATCHER
        assert fill.kind == CallableKind.PYTHON_IMPORT
        assert fill.name == "fill"
        assert fill.digest == only.digest
        assert MODULE not in sys.modules
        y, z = counted(worker, 8), counted(worker, 8)

        def graph(orch: Any, args: Any, config: Any) -> None:
            def refused(match: str, *handles_and_args: Any, **options: Any) -> None:
                with pytest.raises(UsageError, match=match):
                    orch.submit_next_level(*handles_and_args, **options)

            orch.submit_next_level(fill, filled(y, value=3), worker=first)
            # needs no worker=, because it is registered with only one worker
            orch.submit_next_level(only, filled(z, value=4))
            message = "'fill' is registered with the workers 0, 1 only, and "
            refused(message + "worker= is missing", fill, filled(y, value=1))
            for child in (third, local):
                refused(
                    message + f"the task would run on worker {child}",
                    *(fill, filled(y, value=1)),
                    worker=child,
                )
            with pytest.raises(UsageError, match="workers= is missing; name one of these workers"):
                orch.submit_next_level_group(fill, [filled(y, value=1)])
            with pytest.raises(UsageError, match="a Python function, which the children of submit"):
                orch.submit_sub(fill, filled(y, value=1))

        worker.run(graph)
        assert (y == 3).all()
        assert (z == 4).all()

        def group(orch: Any, args: Any, config: Any) -> None:
            members = [filled(y[:4], value=6), filled(y[4:], value=7)]
            orch.submit_next_level_group(fill, members, workers=[second, first])

        worker.run(group)
        assert y.tolist() == [6.0] * 4 + [7.0] * 4
        worker.unregister(fill)
        worker.run(lambda o, a, c: o.submit_next_level(only, filled(z, value=9), worker=third))
        assert (z == 9).all()


def test_a_remote_callable_names_a_buffer_of_its_host(host: Agent) -> None:
    with Worker(level=4) as worker:
        hosts = [worker.add_remote_worker(spec_of(host)) for _ in range(2)]
        double = worker.register(RemoteCallable(f"{MODULE}:double"), workers=hosts)
        once = worker.register(RemoteCallable(f"{MODULE}:double"), workers=hosts[:1])
        buffer = worker.remote_malloc(32, hosts[1])
        worker.remote_copy_to(buffer, counted(worker, 8))
        y = counted(worker, 8)
        made = RemoteTaskArgs()
        made.add_tensor(RemoteTensorRef(buffer, (8,)))
        made.add_tensor(y, TensorArgType.OUTPUT_EXISTING)

        def graph(orch: Any, args: Any, config: Any) -> None:
            orch.submit_next_level(double, made)
            with pytest.raises(UsageError, match="workers 0 only, and the task would run on worke"):
                orch.submit_next_level(once, made)

        worker.run(graph)
        assert y.tolist() == [2.0 * i for i in range(8)]


def test_a_restarted_host_has_its_remote_callables(host: Agent) -> None:
    import os
    import signal

    def fatal(orch: Any, args: Any, config: Any) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    with Worker(level=4, on_worker_death="restart") as worker:
        there = worker.add_remote_worker(spec_of(host))
        kill = worker.register(fatal)
        fill = worker.register(RemoteCallable(f"{MODULE}:fill"), workers=[there])
        y = counted(worker, 8)
        with pytest.raises(Exception, match="L4/host0"):
            worker.run(lambda o, a, c: o.submit_next_level(kill, task_args(y)))
        worker.run(lambda o, a, c: o.submit_next_level(fill, filled(y, value=2)))
        assert (y == 2).all()


def test_invalid_registrations_are_refused(host: Agent) -> None:
    with Worker(level=4) as worker:
        there = worker.add_remote_worker(spec_of(host))
        local = worker.add_worker(Worker(level=3))
        fill = RemoteCallable(f"{MODULE}:fill")
        for workers in (None, [], [local], [there, 7]):
            with pytest.raises(UsageError, match=r"pass a list with ids of Workers on other hosts"):
                worker.register(fill, workers=workers)
        with pytest.raises(UsageError, match=r"workers was passed, but .* is not a RemoteCallable"):
            worker.register(spec_of, workers=[there])
        with pytest.raises(UsageError, match="is not an absolute import path"):
            RemoteCallable("fill")
        with pytest.raises(UsageError, match="is not a RemoteWorkerSpec"):
            worker.add_remote_worker(host.address)  # type: ignore[arg-type]
        worker.init()
        for name, reason in (("missing", "no attribute"), ("number", "cannot be called")):
            with pytest.raises(ControlError, match=reason):
                worker.register(RemoteCallable(f"{MODULE}:{name}"), workers=[there])
        assert worker.register(fill, workers=[there]).name == "fill"


def test_a_remote_callable_that_is_missing_fails_the_start(host: Agent) -> None:
    with Worker(level=4) as worker:
        there = worker.add_remote_worker(spec_of(host))
        worker.register(RemoteCallable("no_such_module_anywhere:fill"), workers=[there])
        with pytest.raises(ChildStartError, match="no_such_module_anywhere"):
            worker.init()
