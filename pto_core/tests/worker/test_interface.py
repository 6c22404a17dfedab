"""The example in the interface's docstring runs, and the reference engine conforms."""

from __future__ import annotations

import textwrap

import pytest

from pto_core.errors import UsageError
from pto_devkit.engine import (
    ChildConfiguration,
    Configuration,
    Engine,
    ReferenceEngine,
    RingConfiguration,
    interface,
)

RINGS = tuple(RingConfiguration(1 << 20 | ring << 12, 1 << 12) for ring in range(4))


def test_the_example_of_the_interface_runs():
    assert Engine.__doc__ is not None
    _, _, rest = Engine.__doc__.partition("::\n\n")
    example, _, _ = rest.partition("\n\n    Only one thread")
    configuration = Configuration((ChildConfiguration(interface.Kind.SUB),), RINGS)
    names = dict(vars(interface))
    names |= {"ReferenceEngine": ReferenceEngine, "configuration": configuration}
    exec(textwrap.dedent(example), names)
    engine: Engine = names["engine"]
    snapshot = engine.snapshot()
    assert snapshot["children"][0]["completed"] == 1
    assert not snapshot["runs"][0]["is_open"]


@pytest.mark.parametrize(
    ("rings", "message"),
    [
        (RINGS[:3], "3 heap rings given; pass 4"),
        ((*RINGS[:3], RingConfiguration(1 << 20, 1000)), "a multiple of 1024"),
        ((*RINGS[:3], RingConfiguration(5, 1024)), "a multiple of 1024"),
    ],
)
def test_invalid_rings_are_refused(rings, message):
    with pytest.raises(UsageError, match=message):
        Configuration((), rings)


def test_a_window_of_no_frames_is_refused():
    with pytest.raises(UsageError, match="pass at least 1"):
        Configuration((ChildConfiguration(interface.Kind.SUB, 0),), RINGS)
