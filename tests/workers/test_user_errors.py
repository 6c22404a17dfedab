"""The error of a task is also of the class that its function raised."""

from __future__ import annotations

import pickle
import re
from pathlib import Path
from typing import Any

import pytest

from pto_core import Worker, task
from pto_core.errors import PtoError, TaskFailedError, UsageError
from pto_core.worker.failures import failed_with


class Coded(Exception):
    def __init__(self, code: int, *, retry: bool) -> None:
        super().__init__(f"code {code}")
        self.code, self.retry = code, retry

    def __reduce__(self) -> Any:
        return _coded, (self.code, self.retry)


def _coded(code: int, retry: bool) -> Coded:
    return Coded(code, retry=retry)


class Odd(Exception):
    """Its ``__init__`` requires other arguments than ``args``."""

    def __init__(self, status: int, *, url: str) -> None:
        super().__init__(f"status {status}")
        self.status, self.url = status, url


class Final(Exception):
    def __init_subclass__(cls) -> None:
        raise TypeError("no subclasses")


class Slotted(Exception):
    __slots__ = ("inside", "path")

    def __init__(self, inside: int = 0) -> None:
        self.inside = inside


def open_nothing() -> None:
    Path("/nonexistent").read_text()


def decode() -> None:
    b"a\xff".decode()


def raise_odd() -> None:
    raise Odd(404, url="x")


def raise_slotted() -> None:
    raise Slotted(3)


def raise_key() -> None:
    {}["k"]


@task
def raise_coded() -> None:
    raise Coded(7, retry=True)


@task
def call(function: Any) -> Any:
    return function()


def test_except_names_the_class_of_the_program(make) -> None:
    worker = make(num_sub_workers=1)
    with worker.session() as s:
        handle = s.submit(raise_coded)
        with pytest.raises(Coded, match=r"Coded: code 7, in task 0 \(raise_coded") as caught:
            handle.result()
    error = caught.value
    assert isinstance(error, TaskFailedError)
    assert type(error).__name__ == "TaskFailedError"
    assert (error.task, error.code, error.retry) == (0, 7, True)
    assert not hasattr(error, "no_such_attribute")
    assert isinstance(error.__cause__, Coded)
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is TaskFailedError
    assert (copy.task, copy.message) == (error.task, error.message)


def test_the_error_of_a_run_is_of_that_class_too(make) -> None:
    worker = make(num_sub_workers=1)
    with pytest.raises(Coded) as caught, worker.session() as s:
        [s.submit(raise_coded) for _ in range(2)]
    assert [type(one) for one in caught.value.failures] == [type(caught.value)]
    with pytest.raises(ZeroDivisionError):
        worker.map(lambda x: 1 // x, [0])


def test_the_class_passes_a_worker_between() -> None:
    with Worker(level=4) as top:
        child = Worker(level=3, num_sub_workers=1)
        top.add_worker(child)
        inner = child.register(raise_coded.function)

        def graph(orch: Any, args: Any, config: Any) -> None:
            orch.submit_sub(inner)

        handle = top.register(graph)
        with pytest.raises(Coded) as caught:
            top.run(lambda orch, args, config: orch.submit_next_level(handle, None, None))
        assert caught.value.code == 7


def test_the_error_has_the_attributes_of_the_exception(make) -> None:
    worker = make(num_sub_workers=1)
    for function, attributes in (
        (open_nothing, {"errno": 2, "filename": "/nonexistent"}),
        (decode, {"object": b"a\xff", "start": 1, "encoding": "utf-8"}),
        (raise_odd, {"status": 404, "url": "x", "args": ("status 404",)}),
        (raise_slotted, {"inside": 3}),
        (raise_key, {"args": ("k",)}),
    ):
        with worker.session() as s:
            error = s.submit(call, function).exception()
        assert isinstance(error, type(error.__cause__))
        for name, value in attributes.items():
            assert getattr(error, name) == value, name
        assert re.search(r"in task \d+ \(call, ", error.message)
        assert str(error) == error.message
        assert error.path == "L3/sub0"


@pytest.mark.parametrize(
    "kind", [KeyError, OSError, FileNotFoundError, UnicodeDecodeError, Slotted, ValueError]
)
def test_classes_of_any_layout(kind: type[Exception]) -> None:
    made = failed_with(kind)
    error = made("a message", task=3)
    assert isinstance(error, kind)
    assert str(error) == error.message == "a message"
    assert error.task == 3
    assert failed_with(kind) is made


@pytest.mark.parametrize(
    "kind", [SystemExit, KeyboardInterrupt, StopIteration, UsageError, PtoError, Final]
)
def test_classes_that_stay_apart(kind: type[BaseException]) -> None:
    assert failed_with(kind) is TaskFailedError


def test_an_exception_that_cannot_be_made_again_keeps_its_texts(make) -> None:
    class Local(Exception):
        def __init__(self, one: int, two: int) -> None:
            super().__init__("of this function")

    def fail() -> None:
        raise Local(1, 2)

    worker = make(num_sub_workers=1)
    with worker.session() as s:
        error = s.submit(call, fail).exception()
    assert type(error) is TaskFailedError
    assert "Local: of this function" in str(error)
    assert "raise Local(1, 2)" in error.remote_traceback
