"""Names that were free when something was compiled, and must still be.

A header is found in the first folder searched that has it. A new file in another of those folders
may be found instead, although nothing that was read has changed. Which name the source asked for is
not known, so every end of a header's path counts: for ``/lib/pto/a.h`` the names ``a.h``,
``pto/a.h`` and ``lib/pto/a.h``, below each folder searched.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

FreeNames = dict[str, list[str]]
"""Names that do not exist, by a folder that does."""


def free_names(read: Iterable[Path], searched: Iterable[Path]) -> FreeNames:
    """Give the names under which a file in ``read`` could be shadowed in a folder searched."""
    content: dict[str, frozenset[str]] = {}
    found: dict[str, set[str]] = {}
    ends = {path.parts[index:] for path in read for index in range(1, len(path.parts))}
    for folder in dict.fromkeys(searched):
        for end in ends:
            place = _first_free(str(folder), end, content)
            if place is not None:
                found.setdefault(place[0], set()).add(place[1])
    return {folder: sorted(names) for folder, names in sorted(found.items())}


def are_free(names: FreeNames) -> bool:
    """Say whether none of the names has come into being since."""
    return all(_names_in(folder).isdisjoint(absent) for folder, absent in names.items())


def _first_free(
    folder: str, end: tuple[str, ...], content: dict[str, frozenset[str]]
) -> tuple[str, str] | None:
    """Find the first part of ``folder/end`` that does not exist; None when all of it does."""
    for part in end:
        if folder not in content:
            content[folder] = _names_in(folder)
        if part not in content[folder]:
            return folder, part
        folder = os.path.join(folder, part)
    return None


def _names_in(folder: str) -> frozenset[str]:
    try:
        return frozenset(os.listdir(folder))
    except OSError:
        return frozenset()
