"""Check that a runtime reports the first error of an invalid graph, and that the next run works."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from pto_devkit import abi, graphs
from pto_devkit.checks import expect
from pto_devkit.native import RecorderLog, RunOutcome, StatusError
from pto_devkit.ordering import run_and_verify
from pto_devkit.session import RuntimeSession
from pto_devkit.subjects import RECORDER_AIV, RuntimeSubject

_NO_SUCH_TASK = 1_000_000
_NO_SUCH_KERNEL = 4321


def _run_wrong(
    runtime: RuntimeSubject,
    build: Callable[[RuntimeSession, RecorderLog], object],
    allowed: tuple[abi.Status, ...],
    *,
    result: int = 0,
) -> RunOutcome:
    """Run the graph of ``build``, require one of the ``allowed`` errors, then run a valid graph."""
    with RuntimeSession(runtime) as session:
        log = RecorderLog(session.device, 16)
        session.start()
        build(session, log)
        outcome = session.end(result)
        expect(
            outcome.status in allowed and outcome.message,
            f"the run ended with {outcome.status.name} {outcome.message!r}, expected "
            f"{' or '.join(status.name for status in allowed)} and a message",
        )
        run_and_verify(session, graphs.diamond())
        return outcome


def _submit(
    session: RuntimeSession, log: RecorderLog, count: int, *, publish: bool = True
) -> list[int]:
    ids = [session.submit(RECORDER_AIV, log.arguments(index)) for index in range(count)]
    for task in ids if publish else ():
        session.publish(task)
    return ids


def check_cycle(runtime: RuntimeSubject) -> None:
    """Require that a cycle ends the run at once with CYCLE, and that ``task`` is part of it."""
    ids: list[int] = []

    def build(session: RuntimeSession, log: RecorderLog) -> None:
        ids[:] = _submit(session, log, 5, publish=False)
        for producer, consumer in ((0, 1), (1, 2), (2, 3), (3, 1), (3, 4)):
            session.add_edge(ids[producer], ids[consumer])
        for task in ids:
            session.publish(task)

    outcome = _run_wrong(runtime, build, (abi.Status.CYCLE,))
    expect(
        outcome.error.task in ids[1:4], f"task {outcome.error.task} is not on the cycle {ids[1:4]}"
    )


def check_self_edge(runtime: RuntimeSubject) -> None:
    """Require that an edge from a task to itself is refused."""

    def build(session: RuntimeSession, log: RecorderLog) -> None:
        task = session.submit(RECORDER_AIV, log.arguments(0))
        session.add_edge(task, task)
        session.publish(task)

    _run_wrong(runtime, build, (abi.Status.USAGE, abi.Status.CYCLE))


def check_unknown_task(runtime: RuntimeSubject) -> None:
    """Require a usage error that contains the id for an edge from a task that does not exist."""
    for missing in (_NO_SUCH_TASK, -7):

        def build(session: RuntimeSession, log: RecorderLog, missing: int = missing) -> None:
            task = _submit(session, log, 1)[0]
            session.add_edge(missing, task)

        outcome = _run_wrong(runtime, build, (abi.Status.USAGE,))
        expect(
            str(missing) in outcome.message,
            f"the message does not name task {missing}: {outcome.message}",
        )


def check_unknown_kernel(runtime: RuntimeSubject) -> None:
    """Require -1 for an unknown func_id, and a usage error with the id at the end of the run."""

    def build(session: RuntimeSession, log: RecorderLog) -> None:
        task = session.submit(_NO_SUCH_KERNEL, log.arguments(0))
        expect(task == -1, f"submit of an unknown func_id returned task {task}, not -1")

    outcome = _run_wrong(runtime, build, (abi.Status.USAGE,))
    expect(str(_NO_SUCH_KERNEL) in outcome.message, f"no func_id in the message: {outcome.message}")


def check_too_many_arguments(runtime: RuntimeSubject) -> None:
    """Require CAPACITY, with value and limit, for a task with ``max_args`` + 1 arguments."""
    most = runtime.native.table.max_args

    def build(session: RuntimeSession, log: RecorderLog) -> None:
        task = session.submit(RECORDER_AIV, log.arguments(0, [0] * (most - 3)))
        expect(task == -1, f"submit with {most + 1} arguments returned task {task}, not -1")

    outcome = _run_wrong(runtime, build, (abi.Status.CAPACITY,))
    numbers = (outcome.error.value, outcome.error.limit)
    expect(numbers == (most + 1, most), f"value, limit: {numbers}, expected {(most + 1, most)}")


def check_orchestration_failure(runtime: RuntimeSubject) -> None:
    """Require ORCHESTRATION with the value 3 if the caller ends the graph with the result 3."""
    outcome = _run_wrong(
        runtime,
        lambda session, log: _submit(session, log, 3),
        (abi.Status.ORCHESTRATION,),
        result=3,
    )
    expect(outcome.error.value == 3, f"the error's value is {outcome.error.value}, expected 3")


def check_first_error_wins(runtime: RuntimeSubject) -> None:
    """Require that a run reports its first error, and that submits after it return -1."""

    def build(session: RuntimeSession, log: RecorderLog) -> None:
        session.submit(_NO_SUCH_KERNEL, log.arguments(0))
        task = session.submit(RECORDER_AIV, log.arguments(0))
        expect(task == -1, f"a submit after the first error returned task {task}, not -1")
        session.add_edge(_NO_SUCH_TASK, _NO_SUCH_TASK)

    outcome = _run_wrong(runtime, build, (abi.Status.USAGE,), result=3)
    expect(
        str(_NO_SUCH_KERNEL) in outcome.message, f"this is not the first error: {outcome.message}"
    )


def check_unpublished_work(runtime: RuntimeSubject) -> None:
    """Require that tasks that are not published never run; the run ends with UNPUBLISHED."""
    with RuntimeSession(runtime) as session:
        log = RecorderLog(session.device, 2)
        session.start()
        published = session.submit(RECORDER_AIV, log.arguments(0))
        kept = session.submit(RECORDER_AIV, log.arguments(1))
        session.publish(published)
        outcome = session.end()
        expect(
            outcome.status == abi.Status.UNPUBLISHED and outcome.message,
            f"task {kept} was not published, but the run ended with {outcome.status.name}",
        )
        expect(log.read()["runs"][1] == 0, f"task {kept} ran although it was not published")
        run_and_verify(session, graphs.diamond())


def check_publish_twice(runtime: RuntimeSubject) -> None:
    """Require a usage error if a task is published twice."""

    def build(session: RuntimeSession, log: RecorderLog) -> None:
        task = _submit(session, log, 1)[0]
        session.publish(task)

    _run_wrong(runtime, build, (abi.Status.USAGE,))


def check_abort(runtime: RuntimeSubject) -> None:
    """Require ABORTED for a run that another thread aborts; the next run works."""
    with RuntimeSession(runtime) as session:
        log = RecorderLog(session.device, 100)
        session.start()
        session.submit_graph(graphs.chain(100), log)
        other = threading.Thread(target=session.device.abort)
        other.start()
        other.join()
        outcome = session.end()
        expect(
            outcome.status == abi.Status.ABORTED,
            f"an aborted run ended with {outcome.status.name}, not ABORTED",
        )
        run_and_verify(session, graphs.diamond())


def check_failing_kernel(runtime: RuntimeSubject) -> None:
    """Require KERNEL with task and error text for a kernel that fails; later tasks do not run."""

    def fail(_payload: Any, _core: int, error: Any) -> int:
        error.contents.status = abi.Status.KERNEL
        error.contents.message = b"the kernel of the kit fails on purpose"
        return int(abi.Status.KERNEL)

    with RuntimeSession(runtime) as session:
        failing = session.device.load_callback(9, abi.Core.AIV, fail)
        log = RecorderLog(session.device, 1)
        session.device.start([*session.kernels, failing])
        culprit = session.submit(failing.func_id, [])
        follower = session.submit(RECORDER_AIV, log.arguments(0))
        session.add_edge(culprit, follower)
        session.publish(culprit)
        session.publish(follower)
        outcome = session.end()
        named = (outcome.status, outcome.error.task, outcome.error.func_id)
        wanted = (abi.Status.KERNEL, culprit, failing.func_id)
        expect(named == wanted, f"status, task, func_id: {named}, expected {wanted}")
        expect("on purpose" in outcome.message, f"the kernel's message is lost: {outcome.message}")
        expect(log.read()["runs"][0] == 0, "the task after the failed one ran")
        run_and_verify(session, graphs.diamond())


def check_unknown_options_are_refused(runtime: RuntimeSubject) -> None:
    """Require that an unknown option causes a usage error that names the option."""
    with runtime.backend.open() as device:
        try:
            runtime.attach(device, no_such_option="1")
        except StatusError as refusal:
            expect(
                refusal.status == abi.Status.USAGE and "no_such_option" in refusal.message,
                f"create(no_such_option=1) returned {refusal}; expected USAGE and its name",
            )
        else:
            expect(False, "create(no_such_option=1) was accepted")


def check_unsupported_scopes(runtime: RuntimeSubject) -> None:
    """Require UNSUPPORTED when a scope is opened, if the variant does not claim ``scopes``."""
    with RuntimeSession(runtime) as session:
        session.start()
        handle = session.device.runtime_handle
        status = session.device.runtime_table.scope_begin(handle, None, -1)
        session.end()
        expect(
            status == abi.Status.UNSUPPORTED,
            f"scope_begin returned {abi.Status(status).name}, not UNSUPPORTED",
        )
