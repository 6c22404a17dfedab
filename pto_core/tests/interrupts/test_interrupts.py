"""Deferred signals: none is lost, and the program's handlers are restored at the end."""

from __future__ import annotations

import gc
import os
import select
import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from pto_core.interrupts import Interrupts

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Ended(Exception):
    """The exception that the program's handlers raise here."""


def end(number: int, frame: Any) -> None:
    raise Ended(number)


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """Make every signal handler raise."""
    before = [(number, signal.signal(number, end)) for number in SIGNALS]
    yield
    for number, handler in before:
        signal.signal(number, handler)


def test_a_deferred_signal_runs_its_handler_at_the_end() -> None:
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
def test_uses_nest_and_the_outermost_end_raises(arriving) -> None:
    seen: list[int | None] = []

    def hold() -> None:
        with Interrupts() as outer:
            with Interrupts() as inner:
                signal.raise_signal(arriving)
                seen.append(inner.signal)
            seen.append(outer.signal)

    with pytest.raises(Ended) as caught:
        hold()
    assert caught.value.args == (arriving,)
    assert seen == [arriving, arriving]


def test_each_signal_that_was_noted_reaches_its_handler() -> None:
    got: list[int] = []
    for number in SIGNALS:
        signal.signal(number, lambda number, frame: got.append(number))
    with Interrupts() as interrupts:
        for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.raise_signal(number)
        assert got == []
        assert interrupts.signal == signal.SIGHUP
    assert sorted(got) == sorted(SIGNALS)
    assert interrupts.signal is None


def test_a_signal_that_is_ignored_stays_so() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with Interrupts() as interrupts:
        signal.raise_signal(signal.SIGINT)
        assert interrupts.signal is None


def test_other_threads_are_not_affected() -> None:
    seen: list[tuple[int | None, int]] = []

    def ask() -> None:
        with Interrupts() as interrupts:
            seen.append((interrupts.signal, interrupts.descriptor))

    def hold() -> None:
        with Interrupts():
            signal.raise_signal(signal.SIGINT)
            thread = threading.Thread(target=ask)
            thread.start()
            thread.join()

    with pytest.raises(Ended):
        hold()
    assert seen == [(None, -1)]


def test_a_fork_has_the_handlers_of_the_program() -> None:
    with Interrupts():
        child = os.fork()
        if child == 0:
            try:
                signal.raise_signal(signal.SIGINT)
            except Ended:
                os._exit(0)
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def descriptors() -> set[str]:
    """List the descriptors of this process, after those of earlier tests were released."""
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


def test_the_descriptor_is_created_only_on_demand() -> None:
    before = descriptors()
    with Interrupts():
        assert descriptors() <= before
