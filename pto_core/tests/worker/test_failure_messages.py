"""The messages about failures in children, and the fields of the errors."""

from __future__ import annotations

import pickle
import traceback
from typing import Any

import pytest

from pto_core.errors import (
    ChildDiedError,
    ChildHungError,
    PoisonedTask,
    TaskFailedError,
    TaskPoisonedError,
    UsageError,
)
from pto_core.worker.failures import (
    Failure,
    TaskPlace,
    poisoned_error,
    poisoned_task,
    run_error,
    task_error,
)
from pto_core.worker.processes import ChildExit

PLACE = TaskPlace(3, "reduce", "graph.py", 12, 1, "L3/sub1")


def raised(exception: BaseException) -> Failure:
    try:
        raise exception
    except BaseException as error:  # noqa: BLE001 - the caller passes any exception
        return Failure.of(error)


class NoReturn(Exception):
    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")
        self.cannot_be_pickled = lambda: None


class NoWords(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no message")


def test_a_failure_arrives_with_its_traceback_and_its_exception() -> None:
    sent = raised(UsageError("no such thing", name="x"))
    arrived = Failure.unpack(sent.pack())
    assert (arrived.type_name, arrived.message) == ("UsageError", "no such thing")
    assert "raise exception" in arrived.traceback
    assert isinstance(arrived.exception, UsageError)
    assert arrived.exception.name == "x"


def test_the_traceback_of_a_repeated_failure_is_its_own() -> None:
    def fail(number: int) -> None:
        if number > 2:
            raise ValueError(number)
        raise ValueError(number)

    for number in (1, 2, 3, 4):
        with pytest.raises(ValueError, match=str(number)) as found:
            fail(number)
        expected = "".join(traceback.format_exception(found.value))
        assert Failure.of(found.value).traceback == expected


class Wrong(Exception):
    pass


def with_a_note() -> BaseException:
    error = ValueError("a")
    error.add_note("a note")
    return error


@pytest.mark.parametrize(
    "exception",
    [
        OSError(2, "no file", "x"),
        ValueError(),
        KeyError("a\nb"),
        Wrong("of a module"),
        NoWords(),
        with_a_note(),
        SyntaxError("bad", ("f.py", 1, 2, "a b", 1, 3)),
        NameError("name 'lenn' is not defined", name="lenn"),
        KeyboardInterrupt(),
    ],
)
def test_the_traceback_is_that_of_python(exception: BaseException) -> None:
    expected = "".join(traceback.format_exception_only(exception))
    if isinstance(exception, NoWords):
        expected = f"{__name__}.NoWords: (its __str__ raised an exception)\n"
    failure = raised(exception)
    assert failure.traceback.endswith(f"raise exception\n{expected}")


@pytest.mark.parametrize(
    ("exception", "message"),
    [
        (NoReturn(1, 2), "1 and 2"),
        (ValueError(lambda: None), None),
    ],
)
def test_an_exception_that_cannot_be_sent_still_has_a_message(
    exception: BaseException, message: str | None
) -> None:
    arrived = Failure.unpack(raised(exception).pack())
    assert arrived.type_name == type(exception).__name__
    assert arrived.exception is None
    assert message is None or arrived.message == message


def test_causes_are_sent_without_contexts_up_to_a_limit() -> None:
    error = ValueError("0")
    error.__context__ = KeyError("handled before")
    received = Failure.unpack(Failure.of(error).pack()).exception
    assert received is not None
    assert received.__cause__ is None
    for number in range(1, 30):
        cause, error = error, ValueError(str(number))
        error.__cause__ = cause
    received, texts = Failure.unpack(Failure.of(error).pack()).exception, []
    while received is not None:
        texts.append(str(received))
        received = received.__cause__
    assert texts == [str(number) for number in range(29, 9, -1)]


def test_a_message_that_cannot_be_computed_is_replaced() -> None:
    assert Failure.unpack(raised(NoWords()).pack()).message == "(its __str__ raised an exception)"


def test_the_error_of_a_task_names_place_and_cause() -> None:
    error = task_error(PLACE, raised(ValueError("boom")))
    assert isinstance(error, TaskFailedError)
    assert error.message == ("L3/sub1: ValueError: boom, in task 3 (reduce, graph.py:12)")
    assert (error.task, error.callable, error.path) == (3, "reduce", "L3/sub1")
    assert (error.file, error.line) == ("graph.py", 12)
    assert "raise exception" in error.remote_traceback
    assert "raise exception" in error.__notes__[0]
    assert isinstance(error.__cause__, ValueError)


def test_the_error_of_a_run_is_its_first_failure_with_the_rest_attached() -> None:
    first = task_error(PLACE, raised(ValueError("boom")))
    second = task_error(TaskPlace(4, "other", path="L3/sub0"), raised(KeyError("key")))
    poisoned = [poisoned_task(TaskPlace(5 + i, "after", "graph.py", 20 + i), 3) for i in range(7)]
    error = run_error([first, second], poisoned)
    assert isinstance(error, TaskFailedError)
    assert error.message == (
        "L3/sub1: ValueError: boom, in task 3 (reduce, graph.py:12); 1 other task failed "
        "too; 7 tasks did not run because of that: task 5 (after, graph.py:20), "
        "task 6 (after, graph.py:21), task 7 (after, graph.py:22), task 8 (after, graph.py:23), "
        "task 9 (after, graph.py:24) and 2 more"
    )
    assert error.failures == (second,)
    assert error.poisoned == tuple(poisoned)
    assert error.poisoned[0] == PoisonedTask(5, "after", "graph.py", 20, 3)
    assert error.__cause__ is first.__cause__
    again = pickle.loads(pickle.dumps(error))
    assert (again.message, again.poisoned, again.task) == (error.message, error.poisoned, 3)
    assert again.failures[0].message == second.message
    assert again.__notes__ == error.__notes__


@pytest.mark.parametrize(
    ("ending", "message"),
    [
        (
            {"signal": 9},
            "process 77 was ended by SIGKILL (killed from outside, perhaps for lack of memory)",
        ),
        ({"exit_code": 3}, "process 77 ended by itself with code 3"),
    ],
)
def test_a_dead_child_is_named_with_the_task_that_it_ran(
    ending: dict[str, Any], message: str
) -> None:
    died = ChildExit(1, "L3/sub1", 77, **ending).died_error()
    error = run_error([task_error(PLACE, Failure.unpack(Failure.of(died).pack()))], [])
    assert type(error) is ChildDiedError
    assert error.message == f"L3/sub1: {message}, in task 3 (reduce, graph.py:12)"
    assert (error.child, error.pid, error.task, error.line) == (1, 77, 3, 12)
    assert (error.signal, error.exit_code) == (ending.get("signal"), ending.get("exit_code"))


def test_a_hung_child_is_a_timeout() -> None:
    error = task_error(PLACE, Failure.of(ChildExit(1, "L3/sub1", 77, signal=9).hung_error(0.5)))
    assert isinstance(error, ChildHungError)
    assert isinstance(error, TimeoutError)
    assert error.timeout_s == 0.5
    assert "did not end within its time limit of 0.5 s" in error.message


def test_an_error_keeps_the_path_through_every_level() -> None:
    inner = run_error(
        [task_error(TaskPlace(0, "check", path="L5/pod0/host1/sub0"), raised(ValueError("boom")))],
        [],
    )
    for path in ("L5/pod0/host1", "L5/pod0"):
        failure = Failure.unpack(Failure.of(inner).pack())
        inner = run_error([task_error(TaskPlace(1, "graph", path=path), failure)], [])
    assert inner.message == (
        "L5/pod0/host1/sub0: ValueError: boom, in task 0 (check), in task 1 (graph), "
        "in task 1 (graph)"
    )
    assert inner.path == "L5/pod0/host1/sub0"
    deepest = inner
    while isinstance(deepest.__cause__, TaskFailedError):
        deepest = deepest.__cause__
    assert deepest.callable == "check"


def test_the_path_of_another_child_is_not_the_path_of_a_nested_one() -> None:
    """The path of the other child begins with the same text."""
    other = task_error(TaskPlace(0, "check", path="L4/host12/sub0"), raised(ValueError("boom")))
    error = task_error(TaskPlace(1, "graph", path="L4/host1"), Failure.of(other))
    assert error.message.startswith("L4/host1: TaskFailedError: L4/host12/sub0: ValueError: boom")
    assert error.path == "L4/host1"


def test_a_child_that_died_two_levels_down_is_a_failed_task_here() -> None:
    died = task_error(
        TaskPlace(2, "work", path="L4/host0/sub0"),
        Failure.of(ChildExit(0, "L4/host0/sub0", 5, signal=9).died_error()),
    )
    error = task_error(TaskPlace(0, "graph", path="L4/host0"), Failure.of(died))
    assert isinstance(error, TaskFailedError)
    assert isinstance(error.__cause__, ChildDiedError)
    assert error.path == "L4/host0/sub0"
    assert error.message.startswith("L4/host0/sub0: process 5 was ended by SIGKILL")


def test_a_poisoned_task_names_the_failed_task() -> None:
    root = task_error(PLACE, raised(ValueError("boom")))
    error = poisoned_error(TaskPlace(8, "after", "graph.py", 30), PLACE, root)
    assert isinstance(error, TaskPoisonedError)
    assert error.message == (
        "task 8 (after, graph.py:30) did not run because task 3 (reduce, graph.py:12), on which "
        "it depends, failed; submit that task again; if it wrote an array, a task that has the "
        "array as Out can replace it"
    )
    assert error.__cause__ is root
