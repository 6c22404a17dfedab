"""The reasons of edges, and the layouts of the rows of the native analysis."""

from __future__ import annotations

from enum import IntEnum

import numpy as np

NO_ACCESS = 2**32 - 1

REASON = np.dtype(
    [
        ("first", "u4"),
        ("second", "u4"),
        ("first_access", "u4"),
        ("second_access", "u4"),
        ("why", "u4"),
        ("is_conservative", "u4"),
        ("first_byte", "u8"),
        ("shared_bytes", "u8"),
    ]
)
EDGE = np.dtype([("first", "u4"), ("second", "u4"), ("is_redundant", "u4")])
CONFLICT = np.dtype(
    [
        ("first", "u4"),
        ("second", "u4"),
        ("first_byte", "u8"),
        ("last_byte", "u8"),
        ("shared_bytes", "u8"),
    ]
)


class Why(IntEnum):
    """The reason of an edge, from the earlier task A to the later task B."""

    READ = 0
    """B reads what A wrote."""
    OVERWRITE = 1
    """B overwrites what A wrote."""
    ANTI_DEPENDENCE = 2
    """B overwrites what A read."""
    EXPLICIT = 3
    """The program states the edge."""
    CLUSTER = 4
    """B runs on a cluster that is allocated again after the cluster of A was freed."""


VERBS = {
    Why.READ: ("reads", "written"),
    Why.OVERWRITE: ("overwrites", "written before"),
    Why.ANTI_DEPENDENCE: ("overwrites", "read before"),
}
"""What the later task does with a place, and what the earlier task did."""
