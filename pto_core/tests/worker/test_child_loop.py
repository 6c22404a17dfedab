"""The loop of a child process, run over a fake end that keeps its frames in lists."""

from __future__ import annotations

import ctypes
import os
import random
import signal
import socket
import threading
import time
from functools import partial

import numpy as np
import pytest
from child_rig import ARGUMENTS, Child, ProgressTable, blob_of, digest_of

from pto_core import _worker
from pto_core._worker import ContinuousTensor, TaskArgs
from pto_core.errors import EndpointClosedError, ProtocolError, UsageError
from pto_core.interfaces.frame import Answer, AnswerKind, Frame, FrameKind, Outcome
from pto_core.worker.failures import Failure


def arguments(*scalars: int, tensors: int = 0) -> TaskArgs:
    args = TaskArgs()
    for i in range(tensors):
        args.add_tensor(ContinuousTensor.from_pointer(4096 * (i + 1), (2, i), np.int16))
    for scalar in scalars:
        args.add_scalar(scalar)
    return args


def failure_of(answer: Answer) -> Failure:
    assert answer.outcome is Outcome.FAILED
    return Failure.unpack(answer.data)


class TestTasks:
    def test_run_with_and_without_arguments_in_order(self) -> None:
        child = Child()
        calls: list[tuple] = []
        child.know(lambda *given: calls.append(tuple(view.scalars for view in given)))
        child.task()
        child.task(args=arguments(7, -1))
        child.task(args=arguments())
        assert child.run() is False
        assert calls == [((),), ((7, 2**64 - 1),), ((),)]
        assert child.outcomes == dict.fromkeys((1, 2, 3), Outcome.SUCCEEDED)
        assert child.end.is_closed

    def test_see_their_arguments(self) -> None:
        child = Child()
        seen = []
        child.know(
            lambda args: seen.append(
                [(t.address, t.shape, t.dtype.name) for t in args.tensors]
                + [args.tensor_count, args.scalar(0), args.scalar(1, float)]
            )
        )
        args = arguments(5, tensors=2)
        args.add_scalar(1.25)
        child.task(args=args)
        child.run()
        assert seen == [[(4096, (2, 0), "INT16"), (8192, (2, 1), "INT16"), 2, 5, 1.25]]

    def test_write_to_shared_memory_and_refuse_other_memory(self) -> None:
        child = Child()
        shared = np.frombuffer(child.progress.memory, np.uint8)[-16:]  # any shared memory
        private = np.zeros(4)
        args = TaskArgs()
        for numbers in (shared, private):
            args.add_tensor(ContinuousTensor.from_array(numbers))

        def write(args) -> None:
            args.tensor(0)[:] = 3
            args.tensor(1)

        child.know(write)
        child.task(args=args)
        child.run()
        assert shared.sum() == 48
        failure = failure_of(child.end.answers[0])
        assert "tensor 1 at address" in failure.message
        assert "not in shared memory" in failure.message
        assert "shared_array" in failure.message

    # Invariant: Objects that a callable keeps from its arguments never reference a frame that was
    # freed.
    def test_a_callable_may_keep_its_view(self) -> None:
        child = Child()
        kept: list = []
        child.know(kept.append)
        child.know(lambda args: None, "g")
        for scalar in range(200):
            child.task(args=arguments(scalar, tensors=1))
            child.task("g", args=arguments(-1))
        child.run()
        assert [view.scalar(0) for view in kept] == list(range(200))
        assert all(view.tensors[0].address == 4096 for view in kept)

    def test_are_found_by_digest(self) -> None:
        child = Child()
        calls: list[int] = []
        for i in range(10):
            child.know(partial(calls.append, i), str(i))
        order = [random.Random(1).randrange(10) for _ in range(100)]
        for i in order:
            child.task(str(i))
        child.run()
        assert calls == order

    def test_a_task_of_an_unknown_callable_fails(self) -> None:
        child = Child()
        child.know(lambda: None)
        assert child.loop.forget(digest_of("f"))
        assert not child.loop.forget(digest_of("f"))
        child.task()
        child.run()
        failure = failure_of(child.end.answers[0])
        assert failure.type_name == "ProtocolError"
        assert digest_of("f").hex()[:16] in failure.message

    def test_go_to_a_handler_that_runs_them(self) -> None:
        child = Child()
        calls: list[tuple] = []
        child.loop.add(digest_of("f"), "no function")
        child.task(config=3)
        child.task(args=arguments(9), config=4)
        child.run(
            invoke=lambda callable_, view, config: calls.append(
                (callable_, view and view.scalars, config)
            )
        )
        assert calls == [("no function", None, 3), ("no function", (9,), 4)]

    def test_know_digests_of_32_bytes(self) -> None:
        with pytest.raises(UsageError, match="a digest has 32 bytes, not 3"):
            Child().loop.add(b"abc", print)


class TestFailures:
    def fail(self, exception: BaseException, **settings) -> Answer:
        child = Child(**settings)

        def broken() -> None:
            raise exception

        child.know(broken)
        child.know(lambda: None, "g")
        for name in ("g", "f", "g"):
            child.task(name)
        child.run()
        assert child.outcomes == {
            1: Outcome.SUCCEEDED,
            2: Outcome.FAILED,
            3: Outcome.SUCCEEDED,
        }
        return next(answer for answer in child.end.answers if answer.number == 2)

    def test_bring_the_traceback(self) -> None:
        failure = failure_of(self.fail(ValueError("bad value")))
        assert (failure.type_name, failure.message) == ("ValueError", "bad value")
        assert "in broken" in failure.traceback
        assert isinstance(failure.exception, ValueError)

    # Invariant: An exception of a callable fails its task only. The child continues.
    @pytest.mark.parametrize("exception", [SystemExit(3), KeyboardInterrupt(), GeneratorExit()])
    def test_of_every_kind_end_only_their_task(self, exception) -> None:
        assert failure_of(self.fail(exception)).type_name == type(exception).__name__

    def test_that_are_too_large_are_cut(self) -> None:
        text = "x" * 100_000 + "é" * 100_000
        answer = self.fail(ValueError(text), queue_bytes=4096)
        assert len(answer.data) <= 4096 - 64
        failure = failure_of(answer)
        assert failure.message.startswith("xxx")
        assert failure.exception is None

    @pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
    def test_without_a_text_are_reported(self) -> None:
        class Nameless(Exception):
            def __str__(self) -> str:
                raise SystemExit

        failure = failure_of(self.fail(Nameless()))
        assert "could not" in failure.message

    def test_release_the_arguments(self) -> None:
        child = Child()
        kept: list = []

        def broken(args) -> None:
            kept.append(args)
            raise ValueError(args)

        child.know(broken)
        child.task(args=arguments(5))
        child.run()
        assert kept[0].scalars == (5,)


class TestOrder:
    def test_a_requirement_that_succeeded_lets_a_task_run(self) -> None:
        child = Child()
        child.know(lambda: None)
        child.task()
        child.task(required_child=0, required_count=1)
        child.run()
        assert child.outcomes[2] is Outcome.SUCCEEDED

    def test_a_requirement_that_failed_skips_the_task_and_what_requires_it(self) -> None:
        child = Child()
        child.know(lambda: 1 / 0)
        calls: list[int] = []
        child.know(lambda: calls.append(1), "g")
        child.task()
        child.task("g", required_child=0, required_count=1)
        child.task("g", required_child=0, required_count=2)
        child.task("g")
        child.run()
        assert list(child.outcomes.values()) == [
            Outcome.FAILED,
            Outcome.SKIPPED,
            Outcome.SKIPPED,
            Outcome.SUCCEEDED,
        ]
        assert calls == [1]

    def test_children_wait_for_each_other(self) -> None:
        """A chain that alternates between two children, which wait without holding the GIL."""
        progress = ProgressTable(2)
        children = [Child(progress, index) for index in range(2)]
        order: list[int] = []
        length = 500
        for link in range(2 * length):
            child = children[link % 2]
            child.know(partial(order.append, link), str(link))
            before = {"required_child": (link + 1) % 2, "required_count": (link + 1) // 2}
            child.task(str(link), **(before if link else {}))
        threads = [threading.Thread(target=child.run) for child in children]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert order == list(range(2 * length))

    @pytest.mark.parametrize(
        ("head", "message"),
        [
            ({"required_child": 1, "required_count": 1}, "frame of child 1 of 1"),
            ({"required_child": -1, "required_count": 1}, "frame of child -1 of 1"),
            ({"required_child": 0, "required_count": 1}, "its own child, which is not an earlier"),
        ],
    )
    def test_impossible_requirements_end_the_loop(self, head, message) -> None:
        child = Child()
        child.know(lambda: None)
        child.task(**head)
        with pytest.raises(ProtocolError, match=message):
            child.run()

    def test_counts_continue_over_connections(self) -> None:
        progress = ProgressTable()
        for round_ in range(3):
            child = Child(progress)
            child.know(lambda: None)
            required = {"required_child": 0, "required_count": 2 * round_}
            child.task(**(required if round_ else {}))
            child.task()
            child.run()
            assert child.outcomes == {1: Outcome.SUCCEEDED, 2: Outcome.SUCCEEDED}
            assert progress.record()["completed"] == progress.record()["started"] == 2 * round_ + 2


class TestProgressTable:
    def test_the_progress_table_shows_the_state_of_the_child(self) -> None:
        child = Child()
        seen: list[dict] = []
        child.know(lambda: seen.append(child.progress.record()))
        child.task()
        child.task()
        child.control(5)
        child.run(control=lambda given: seen.append(child.progress.record()) or b"")
        assert [(one["started"], one["completed"]) for one in seen] == [(1, 0), (2, 1), (2, 2)]
        assert [one["control"] for one in seen] == [None, None, 5]
        assert child.progress.record()["control"] is None
        assert {one["pid"] for one in seen} == {os.getpid()}
        assert child.progress.record()["ending"] == 1

    def test_counts_a_task_before_its_answer_is_sent(self) -> None:
        """A parent reads the count after the answer; a count that is too low fails the task."""
        child = Child()
        completed: list[tuple[int, int]] = []
        answer = child.end.answer

        def answer_and_look(data: bytes) -> bool:
            number = Answer.unpack(data).number
            completed.append((number, child.progress.record()["completed"]))
            return answer(data)

        child.end.answer = answer_and_look
        child.know(lambda: None)
        child.know(lambda: 1 // 0, "fail")
        merged = 16  # a parent that is awake gets several successes in one answer
        for _ in range(merged):
            child.task("f")
        child.task("fail")
        child.task("f", required_child=0, required_count=merged + 1)  # the frame is skipped
        child.run()
        assert set(child.outcomes) == set(range(1, merged + 3))
        assert all(count >= number for number, count in completed), completed

    def test_processes_of_a_tree_are_known(self) -> None:
        with pytest.raises(UsageError, match="child 2 does not exist: the progress table has 2"):
            ProgressTable(2).record(2)


class TestControl:
    def test_runs_between_tasks_and_answers(self) -> None:
        child = Child()
        order: list = []
        child.know(lambda: order.append("task"))
        child.task()
        child.control(0, b"first")
        child.task()
        child.control(9, b"second")

        def control(given: bytes) -> bytes:
            order.append(given)
            return given.upper()

        child.run(control=control)
        assert order == ["task", b"first", "task", b"second"]
        found = [(answer.kind, answer.number, answer.data) for answer in child.end.answers]
        assert found == [
            (AnswerKind.COMPLETED, 1, b""),
            (AnswerKind.REPLY, 0, b"FIRST"),
            (AnswerKind.COMPLETED, 2, b""),
            (AnswerKind.REPLY, 9, b"SECOND"),
        ]

    def test_ends_the_loop(self) -> None:
        child = Child()
        child.know(lambda: pytest.fail("after the end"))
        child.control(1)
        child.task()

        def close(given: bytes) -> bytes:
            child.loop.stop()
            return b"bye"

        assert child.run(control=close) is True
        assert [answer.data for answer in child.end.answers] == [b"bye"]
        with pytest.raises(UsageError, match="has already run"):
            child.run()

    def test_that_raises_ends_the_loop_with_it(self) -> None:
        child = Child()
        child.control(1)

        def broken(given: bytes) -> bytes:
            raise KeyError("broken")

        with pytest.raises(KeyError):
            child.run(control=broken)
        assert child.end.is_closed

    @pytest.mark.parametrize("reply", [None, "text", bytes(1 << 16)], ids=["none", "text", "large"])
    def test_returns_bytes_within_the_limit(self, reply) -> None:
        child = Child()
        child.control(1)
        with pytest.raises(UsageError, match="return at most 65472 bytes"):
            child.run(control=lambda given: reply)
        assert child.loop.largest_answer == 65472


class TestAnswers:
    def test_merge_successes(self) -> None:
        child = Child()
        child.know(lambda: None)
        for _ in range(100):
            child.task()
        child.run()
        assert len(child.outcomes) == 100
        assert len(child.end.answers) < 30

    def test_that_have_no_free_space_do_not_stop_the_tasks(self) -> None:
        child = Child()
        child.end.free_space = 0
        calls: list[int] = []

        def count() -> None:
            calls.append(1)
            if len(calls) == 60:
                child.end.free_space = 100

        child.know(count)
        for _ in range(64):
            child.task()
        child.run()
        assert child.end.answers[0].number >= 60
        assert len(child.outcomes) == 64

    @pytest.mark.parametrize(("task_s", "least", "most"), [(0.0001, 50, 50), (0, 1, 25)])
    def test_wake_a_parent_that_sleeps_for_long_tasks_only(self, task_s, least, most) -> None:
        child = Child()
        bell = _worker.progress_table_parent_bell(child.progress.address)
        sleepers = ctypes.c_uint32.from_address(bell + 4)  # the member pto_bell.sleepers

        def work() -> None:
            end = time.perf_counter() + task_s
            while time.perf_counter() < end:
                pass
            sleepers.value = 1

        child.know(work)
        for _ in range(50):
            child.task()
        child.run()
        assert least <= len(child.end.answers) <= most
        assert len(child.outcomes) == 50

    def test_of_failures_wait_for_free_space(self) -> None:
        child = Child()
        child.know(lambda: 1 / 0)
        child.task()
        child.end.free_space = 0
        threading.Timer(0.05, lambda: setattr(child.end, "free_space", 1)).start()
        child.run()
        assert failure_of(child.end.answers[0]).type_name == "ZeroDivisionError"


class TestWaiting:
    def test_lets_other_threads_run(self) -> None:
        child = Child()
        child.know(lambda: None)
        progress: list[int] = []

        def feed() -> None:
            for i in range(5):
                child.task()
                progress.append(i)
                time.sleep(0.001)
            child.end.when_empty = child.end.close_parent

        child.end.when_empty = lambda: None
        thread = threading.Thread(target=feed)
        thread.start()
        child.run()
        thread.join()
        assert len(child.outcomes) == 5

    def test_runs_signal_handlers_and_drops_interrupts(self) -> None:
        child = Child()
        child.know(lambda: None)
        has_looked = threading.Event()
        child.end.when_empty = has_looked.set
        got: list[int] = []
        before = signal.signal(signal.SIGUSR1, lambda number, frame: got.append(number))

        def disturb() -> None:
            # Whenever this thread has the GIL after a poll, the loop waits without it.
            for number in (signal.SIGUSR1, signal.SIGINT):
                has_looked.clear()
                assert has_looked.wait(10)
                os.kill(os.getpid(), number)
            has_looked.clear()
            assert has_looked.wait(10)
            child.task()
            child.end.when_empty = child.end.close_parent

        thread = threading.Thread(target=disturb)
        try:
            thread.start()
            child.run()
        finally:
            thread.join()
            signal.signal(signal.SIGUSR1, before)
        assert got == [signal.SIGUSR1]
        assert child.outcomes == {1: Outcome.SUCCEEDED}

    def test_the_wait_raises_the_exception_of_a_signal_handler(self) -> None:
        child, has_looked = Child(), threading.Event()
        child.end.when_empty = has_looked.set

        def leave(number, frame) -> None:
            raise SystemExit(7)

        def disturb() -> None:
            if has_looked.wait(60):  # the signal must arrive inside the loop, which runs until then
                os.kill(os.getpid(), signal.SIGUSR1)

        before = signal.signal(signal.SIGUSR1, leave)
        thread = threading.Thread(target=disturb)
        try:
            thread.start()
            with pytest.raises((SystemExit, ProtocolError)):
                child.run()
        finally:
            thread.join()
            signal.signal(signal.SIGUSR1, before)


class TestBrokenFrames:
    @pytest.mark.parametrize(
        ("frame", "message"),
        [
            (Frame(FrameKind.TASK, 1, flags=4), "flags 4"),
            (Frame(FrameKind.TASK, 1, b"abcd"), "without arguments has 4 bytes"),
            (Frame(FrameKind.TASK, 1, b"", flags=ARGUMENTS), "0 bytes arrived"),
            (Frame(FrameKind.TASK, 1, bytes(9), flags=ARGUMENTS), "of a task are invalid"),
        ],
    )
    def test_end_the_loop_with_a_message(self, frame, message) -> None:
        child = Child()
        child.end.frames.append(frame.pack())
        with pytest.raises(ProtocolError, match=message):
            child.run()
        assert child.progress.record()["ending"] == 2
        assert child.end.is_closed

    def test_random_bytes_only_raise_protocol_errors(self) -> None:
        randomness = random.Random(4)
        broken = 0
        for _ in range(3000):
            child = Child()
            child.know(lambda *args: [view.tensors for view in args])
            frame = bytearray(
                Frame(
                    FrameKind.TASK,
                    1,
                    blob_of(arguments(1, tensors=2)),
                    digest_of("f"),
                    flags=ARGUMENTS,
                ).pack()
            )
            for _ in range(randomness.randrange(1, 6)):
                frame[randomness.randrange(32, len(frame))] = randomness.randrange(256)
            whole = randomness.random() < 0.8
            child.end.frames.append(bytes(frame) if whole else randomness.randbytes(100))
            # Remove the requirement: the frame that it names may never be sent.
            frame[40:44] = b"\0\0\0\0"
            try:
                child.run()
            except ProtocolError:
                broken += 1
        assert broken > 1000


class Packets:
    """An end over a socket; see pto_core.interfaces.transport."""

    def __init__(self, packets: socket.socket) -> None:
        packets.setblocking(False)
        self._packets = packets

    def receive(self, limit: int) -> list[bytes]:
        try:
            packet = self._packets.recv(1 << 16)
        except BlockingIOError:
            return []
        if not packet:
            raise EndpointClosedError("the parent closed")
        return [packet]

    def answer(self, answer: bytes) -> bool:
        self._packets.send(answer)
        return True

    def close(self) -> None:
        self._packets.close()


def test_in_a_process_of_its_own() -> None:
    parent, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    progress = ProgressTable()
    pid = os.fork()
    if pid == 0:
        parent.close()
        child = Child(progress)
        child.end.receive = Packets(other).receive  # type: ignore[method-assign]
        child.end.answer = Packets(other).answer  # type: ignore[method-assign]
        child.know(lambda: os.getpid())
        child.know(lambda: 1 / 0, "g")
        os._exit(0 if child.run() is False else 1)
    other.close()
    for name in ("f", "g", "f"):
        parent.send(Frame(FrameKind.TASK, 1, callable=digest_of(name)).pack())
    outcomes: dict[int, Outcome] = {}
    while len(outcomes) < 3:
        answer = Answer.unpack(parent.recv(1 << 16))
        for number in range(len(outcomes) + 1, answer.number):
            outcomes[number] = Outcome.SUCCEEDED
        outcomes[answer.number] = answer.outcome
    assert list(outcomes.values()) == [Outcome.SUCCEEDED, Outcome.FAILED, Outcome.SUCCEEDED]
    assert progress.record()["pid"] == pid
    parent.close()
    assert os.waitpid(pid, 0)[1] == 0
    assert progress.record()["completed"] == 3
