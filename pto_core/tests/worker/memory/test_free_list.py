"""The parts of a range are never allocated twice, and are merged when they are free again."""

from __future__ import annotations

import random

from hypothesis import given, settings, strategies as st

from pto_core.worker.memory.arena import FreeList


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32))
def test_random_use_agrees_with_a_map_of_bytes(seed: int) -> None:
    random_ = random.Random(seed)
    total = 257
    free = FreeList(total)
    used = [False] * total
    taken: list[tuple[int, int]] = []
    for _ in range(300):
        if taken and random_.random() < 0.45:
            offset, size = taken.pop(random_.randrange(len(taken)))
            free.give_back(offset, size)
            used[offset : offset + size] = [False] * size
        else:
            size = random_.randint(1, 40)
            offset_or_none = free.take(size)
            if random_.random() < 0.5:
                if offset_or_none is not None:
                    free.give_back(offset_or_none, size)
                first = random_.randrange(total)
                offset_or_none = free.take_from(first, size)
                assert offset_or_none == lowest_from(used, first, size)
            if offset_or_none is None:
                assert size > longest_gap(used)
            else:
                assert not any(used[offset_or_none : offset_or_none + size])
                used[offset_or_none : offset_or_none + size] = [True] * size
                taken.append((offset_or_none, size))
        assert free.parts == gaps(used)
        assert free.largest == longest_gap(used)


def test_the_best_fit_is_used() -> None:
    free = FreeList(100)
    offsets = [free.take(size) for size in (10, 5, 20, 5, 60)]
    for place, size in ((0, 10), (2, 20)):
        free.give_back(offsets[place], size)
    assert free.take(9) == offsets[0]
    assert free.take(21) is None


def lowest_from(used: list[bool], first: int, size: int) -> int | None:
    starts = [*range(first, len(used)), *range(first)]
    fits = (at for at in starts if at + size <= len(used) and not any(used[at : at + size]))
    return next(fits, None)


def gaps(used: list[bool]) -> list[tuple[int, int]]:
    found = []
    begin = None
    for place, is_used in enumerate([*used, True]):
        if not is_used and begin is None:
            begin = place
        elif is_used and begin is not None:
            found.append((begin, place - begin))
            begin = None
    return found


def longest_gap(used: list[bool]) -> int:
    return max((size for _, size in gaps(used)), default=0)
