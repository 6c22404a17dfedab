"""Sets of bytes, compared with sets of integers."""

from __future__ import annotations

import itertools
import random
import secrets
from collections.abc import Iterable

from pto_insight.graphs.measurement import ByteSet


def bytes_of(ranges: Iterable[tuple[int, int]]) -> set[int]:
    return {byte for begin, end in ranges for byte in range(begin, end)}


def test_random_ranges() -> None:
    seed = secrets.randbits(32)
    print("seed", seed)
    chance = random.Random(seed)
    for _ in range(200):
        found, wanted = ByteSet(), set()
        for _ in range(chance.randrange(1, 12)):
            begin = chance.randrange(40)
            end = begin + chance.randrange(8)
            found.add(begin, end)
            wanted |= set(range(begin, end))
        assert bytes_of(found) == wanted
        assert len(found) == len(wanted)
        ranges = list(found)
        assert all(end < begin for (_, end), (begin, _) in itertools.pairwise(ranges))
        begin, end = sorted((chance.randrange(50), chance.randrange(50)))
        window = set(range(begin, end))
        assert bytes_of(found.within(begin, end)) == wanted & window
        assert bytes_of(found.missing(begin, end)) == window - wanted


def test_ranges_that_touch_are_joined() -> None:
    assert list(ByteSet([(0, 4), (8, 12), (4, 8)])) == [(0, 12)]
