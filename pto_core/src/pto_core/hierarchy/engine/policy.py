"""The placement policy least_loaded."""

from __future__ import annotations

from collections.abc import Sequence


def least_loaded(candidates: Sequence[tuple[int, int]], preferred: int) -> int:
    """Return the child with the fewest frames in flight; in a tie, ``preferred`` or the first.

    The native engine contains the same policy, so it does not call Python for it.
    """
    return min(candidates, key=lambda pair: (pair[1], pair[0] != preferred, pair[0]))[0]
