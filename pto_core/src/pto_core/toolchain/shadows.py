"""Record the file names that do not exist at a build and whose creation would invalidate it.

A header is taken from the first searched folder that contains it. A new file in an earlier folder
would replace it, although no file of the build has changed. The name in the ``#include`` is not
known, so each suffix of a header's path is recorded: for ``/lib/pto/a.h`` the names ``a.h``,
``pto/a.h`` and ``lib/pto/a.h``, below each searched folder.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

FreeNames = dict[str, list[str]]
"""Keys: existing folders. Values: names that do not exist in the folder."""


def free_names(read: Iterable[Path], searched: Iterable[Path]) -> FreeNames:
    """Return the missing names in ``searched`` that, if created, would hide a file in ``read``."""
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
    """Return whether none of the names exists."""
    return all(_names_in(folder).isdisjoint(absent) for folder, absent in names.items())


def _first_free(
    folder: str, end: tuple[str, ...], content: dict[str, frozenset[str]]
) -> tuple[str, str] | None:
    """Return the first missing part of ``folder/end`` and its parent; None if all parts exist."""
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
