"""The placement policy that is used by default."""

from __future__ import annotations

from collections.abc import Sequence


def least_loaded(candidates: Sequence[tuple[int, int]], preferred: int) -> int:
    """Pick the child with the fewest frames in flight. A tie goes to ``preferred``, then the first.

    The native engine contains this policy too, so it does not call Python for it.
    """
    return min(candidates, key=lambda pair: (pair[1], pair[0] != preferred, pair[0]))[0]
