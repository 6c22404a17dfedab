"""Regions overlap and cover each other exactly as their sets of bytes do."""

from __future__ import annotations

import itertools
import random

from pto_devkit.abi import Tag
from pto_devkit.engine.interface import Box, Tensor
from pto_devkit.engine.reference.regions import Region, region_of

BASE = 4096
SHAPES = [(6, 4), (4, 6), (8, 3), (2, 3, 4), (24,), (6, 1, 4)]


def random_box(numbers: random.Random) -> tuple[Region, set[int], tuple[int, ...]]:
    raw = numbers.choice(SHAPES)
    low = tuple(numbers.randrange(n) for n in raw)
    extent = tuple(numbers.randint(1, n - at) for n, at in zip(raw, low, strict=True))
    ranges = [range(at, at + n) for at, n in zip(low, extent, strict=True)]
    covered = set()
    for place in itertools.product(*ranges):
        element = stride = 0
        for n, at in zip(raw, place, strict=True):
            element += at * (stride or 1)
            stride = (stride or 1) * n
        covered |= {BASE + 2 * element, BASE + 2 * element + 1}
    tensor = Tensor(min(covered), len(covered), Tag.INPUT, Box(BASE, 2, raw, low, extent))
    return region_of(tensor, tensor.address), covered, tuple(n for n in raw if n > 1)


def test_regions_are_the_bytes_that_they_cover():
    numbers = random.Random(7)
    conservative = 0
    for _ in range(3000):
        a, bytes_a, raw_a = random_box(numbers)
        b, bytes_b, raw_b = random_box(numbers)
        meet = bool(bytes_a & bytes_b)
        assert a.overlaps(b) >= meet
        assert a.overlaps(b) == b.overlaps(a)
        if raw_a == raw_b or (a.is_contiguous and b.is_contiguous):
            assert a.overlaps(b) == meet
        if a.overlaps(b):
            assert meet or not a.is_certain(b)
            assert bytes_b <= bytes_a or not a.covers(b)
            if raw_a == raw_b:
                assert a.covers(b) == (bytes_b <= bytes_a)
            conservative += not a.is_certain(b)
    assert conservative > 100


def test_keys_meet_keys_of_their_address_alone():
    key, other = Region(BASE, BASE), Region(BASE + 1, BASE + 1)
    assert key.overlaps(Region(BASE, BASE))
    assert not key.overlaps(other)
    assert not key.overlaps(Region(BASE - 1, BASE + 1))
    assert not Region(BASE - 1, BASE + 1).overlaps(key)
