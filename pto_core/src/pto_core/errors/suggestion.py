"""Suggestions of the form "did you mean" for misspelt names."""

from __future__ import annotations

from collections.abc import Iterable


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return ``; did you mean 'x'?``, or an empty text if no known name is similar to ``name``.

    A known name is similar if its distance is at most one edit, plus one edit for every six
    characters. An edit is an insertion, a deletion, a substitution, or an exchange of two
    neighbouring characters.
    """
    allowed = 1 + len(name) // 6
    distances = {other: _edits(name, other) for other in known}
    near = min(distances, key=lambda other: (distances[other], other), default="")
    is_near = near and distances[near] <= min(allowed, len(name) - 1)
    return f"; did you mean {near!r}?" if is_near else ""


def _edits(left: str, right: str) -> int:
    """Count the edits between two names (the optimal string alignment distance)."""
    before: list[int] = []
    last = list(range(len(right) + 1))
    for i, character in enumerate(left, 1):
        row = [i]
        for j, other in enumerate(right, 1):
            cost = min(last[j] + 1, row[-1] + 1, last[j - 1] + (character != other))
            if i > 1 and j > 1 and (character, left[i - 2]) == (right[j - 2], other):
                cost = min(cost, before[j - 2] + 1)
            row.append(cost)
        before, last = last, row
    return last[-1]
