"""Requests to children: an error that no caller waits for is logged."""

from __future__ import annotations

import pickle
from types import SimpleNamespace
from typing import Any

import pytest

from pto_core import log
from pto_core.worker.control import Control
from pto_core.worker.failures import Failure


class SlowDriver:
    """A driver with one child, whose first reply arrives at the third poll for it."""

    def __init__(self) -> None:
        self.requests = 0
        self.questions = 0

    def control(self, child: int, content: bytes) -> int:
        self.requests += 1
        return self.requests

    def reply(self, number: int, timeout_s: float | None = None) -> bytes:
        if number > 1:
            return pickle.dumps((True, None))
        self.questions += 1
        if self.questions < 3:
            raise TimeoutError
        return pickle.dumps((False, Failure.of(ValueError("no such module")).pack()))


@pytest.fixture
def warnings_shown() -> Any:
    log.configure({"log_level": "warn", "log_format": "text"})


@pytest.mark.usefixtures("warnings_shown")
def test_a_refusal_that_arrives_late_is_logged_once(capsys: pytest.CaptureFixture[str]) -> None:
    driver: Any = SlowDriver()
    children: Any = [SimpleNamespace(path="L3/sub0")]
    control = Control(driver, children)
    control.send(0, "callable", bytes(32), [])
    for logged in (0, 0, 1, 0):
        control.ask(0, "statistics")
        text = capsys.readouterr().err
        assert text.count("L3/sub0 could not do 'callable': ValueError: no such module") == logged
