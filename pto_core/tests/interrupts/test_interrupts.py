"""Signals that are held back: none is lost, and the handlers are back whatever comes in between."""

from __future__ import annotations

import gc
import os
import select
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from pto_core.interrupts import Interrupts

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Ended(Exception):
    """What the handlers of the program raise here."""


def end(number: int, frame: Any) -> None:
    raise Ended(number)


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """Let every signal raise."""
    before = [(number, signal.signal(number, end)) for number in SIGNALS]
    yield
    for number, handler in before:
        signal.signal(number, handler)


def test_a_signal_takes_its_course_at_the_end() -> None:
    seen: list[int | None] = []

    def hold() -> None:
        with Interrupts() as interrupts:
            signal.raise_signal(signal.SIGINT)
            seen.append(interrupts.signal)

    with pytest.raises(Ended):
        hold()
    assert seen == [signal.SIGINT]
    assert all(signal.getsignal(number) is end for number in SIGNALS)


@pytest.mark.parametrize("arriving", SIGNALS)
@pytest.mark.parametrize("calls", range(1, 7))
def test_a_signal_between_the_handlers_leaves_none_replaced(monkeypatch, arriving, calls) -> None:
    """Three handlers are replaced and put back, one after the other; it comes after ``calls``."""
    left, change = [calls], signal.signal

    def interrupted(number: int, handler: Any) -> Any:
        old = change(number, handler)
        left[0] -= 1
        if left[0] == 0:
            signal.raise_signal(arriving)
        return old

    monkeypatch.setattr(signal, "signal", interrupted)
    with pytest.raises(Ended) as caught, Interrupts():
        pass
    assert caught.value.args == (arriving,)
    assert all(signal.getsignal(number) is end for number in SIGNALS)


def descriptors() -> set[str]:
    """List those of this process; what an earlier test has left may go meanwhile."""
    gc.collect()
    return set(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("asks_first", [True, False])
def test_the_descriptor_is_readable_from_the_first_signal_on(asks_first) -> None:
    seen: list[bool] = []

    def is_readable(interrupts: Interrupts) -> bool:
        return bool(select.select([interrupts.descriptor], [], [], 0)[0])

    def hold() -> None:
        with Interrupts() as interrupts:
            if asks_first:
                seen.append(is_readable(interrupts))
            signal.raise_signal(signal.SIGINT)
            seen.append(is_readable(interrupts))

    before = descriptors()
    with pytest.raises(Ended):
        hold()
    assert seen == [False, True][not asks_first :]
    assert descriptors() <= before


def test_who_only_holds_signals_back_needs_no_descriptor() -> None:
    before = descriptors()
    with Interrupts() as interrupts:
        assert descriptors() <= before
        assert interrupts.descriptors == ()
