"""Sizes that exceed every counter, truncated messages, empty views, uninitialised objects."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from pto_core import _native, kernel, open_device
from pto_core.errors import TaskFailedError, UsageError


@pytest.mark.parametrize("shape", [(2**40, 2**40), (2**32 + 1, 2**32), (2**62,)])
def test_a_size_that_cannot_be_counted_is_refused(shape):
    with open_device("a2a3sim") as device, pytest.raises(UsageError, match="smaller shape"):
        device.empty(shape, np.float32)


def test_a_message_that_is_cut_inside_a_character_keeps_its_cause():
    @kernel(core="aiv")
    def fail(x):
        raise ValueError("漢字" * 400)

    def graph(rt, x):
        rt.add_task(fail, (x,))

    with open_device("a2a3sim") as device, pytest.raises(TaskFailedError) as caught:
        device.run(graph, np.zeros(4))
    assert isinstance(caught.value.__cause__, ValueError)


def test_a_value_that_is_cut_inside_a_character_is_shown():
    @kernel(core="aiv")
    def nothing(x):
        pass

    def graph(rt, x):
        rt.add_task(nothing, ("漢" * 100,))

    with open_device("a2a3sim") as device, pytest.raises(UsageError, match="漢"):
        device.run(graph, np.zeros(4))


def test_an_empty_view_overlaps_nothing():
    @kernel(core="aiv")
    def one(x, part):
        x[:] = 1 + part.size

    def graph(rt, x, part):
        rt.add_task(one, (x, part))

    x = np.zeros(8)
    with open_device("a2a3sim") as device:
        device.run(graph, x, x[3:3])
    assert (x == 1).all()


@pytest.mark.parametrize("name", ["Device", "Program"])
def test_an_object_without_init_can_be_collected(name):
    unmade = getattr(_native, name).__new__(getattr(_native, name))
    ring = [unmade]
    ring.append(ring)
    del unmade, ring
    assert gc.collect() >= 1
