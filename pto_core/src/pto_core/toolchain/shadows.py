"""Record why a later build could differ although no file that the compiler read has changed.

The compiler takes a header from the first searched folder that has it, so a new file in an earlier
folder would replace it. The record lists these names. For ``/lib/pto/a.h``, found in ``/lib``, they
are ``pto/a.h`` in each folder that is searched before ``/lib``, and in the folders of the files
that may include it, which are searched first.

A source can also ask whether a file exists (``__has_include``), or take bytes of a file that the
compiler does not report (``.incbin``). The names of such files can be computed by macros and by the
assembler, so nothing is recorded: the artefact is built again at each use.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

FreeNames = dict[str, list[str]]
"""Keys: existing folders. Values: names that do not exist in the folder."""

_PROBE = re.compile(
    rb"__has_include|__has_embed|^[ \t]*(?:#|%:|\?\?=).*\bembed\b|incbin|\.include\b",
    re.MULTILINE | re.IGNORECASE,
)
_SPLICE = re.compile(rb"\\[ \t]*\r?\n")
_LIST = re.compile(
    r'^#include "\.\.\." search starts here:\n(.*?)^#include <\.\.\.> search starts here:\n(.*?)'
    r"^End of search list\.",
    re.MULTILINE | re.DOTALL,
)
_MISSING = re.compile(r'^ignoring nonexistent directory "(.*)"$', re.MULTILINE)
# A folder of the search list that has one of these headers belongs to the compiler.
_COMPILER_HEADERS = ("cstddef", "stddef.h", "stdlib.h")


def searched_folders(output: str, folder: Path) -> list[Path] | None:
    """Return the folders of ``-v`` in the order of the search; None if the output has no list.

    A folder that does not exist is first, because the output does not say its place. Relative paths
    are resolved at ``folder``.
    """
    found = _LIST.search(output)
    if found is None:
        return None
    lines = [*_MISSING.findall(output), *found[1].splitlines(), *found[2].splitlines()]
    return [folder / line.strip(" ") for line in lines]


def free_names(read: Iterable[Path], searched: Sequence[Path]) -> FreeNames | None:
    """Return the missing names that, if created, would hide a file in ``read``.

    Return None if a file in ``read`` that is not of the compiler probes or embeds files.
    """
    files = list(read)
    own = [one for one in searched if any((one / name).is_file() for name in _COMPILER_HEADERS)]
    written = [path for path in files if not any(one in path.parents for one in own)]
    if any(_PROBE.search(_SPLICE.sub(b"", path.read_bytes())) for path in written):
        return None
    wanted = set(_hiding(files, searched, {path.parent for path in written}))
    content: dict[str, frozenset[str]] = {}
    found: dict[str, set[str]] = {}
    for folder, end in wanted:
        place = _first_free(folder, end, content)
        if place is not None:
            found.setdefault(place[0], set()).add(place[1])
    return {folder: sorted(names) for folder, names in sorted(found.items())}


def _hiding(
    files: Iterable[Path], searched: Sequence[Path], beside: set[Path]
) -> Iterable[tuple[Path, tuple[str, ...]]]:
    """Return the paths, as folder and rest, that are searched before a file that was read."""
    for path in files:
        for index, found_in in enumerate(searched):
            if found_in in path.parents:
                end = path.relative_to(found_in).parts
                yield from ((earlier, end) for earlier in (*searched[:index], *beside))


def are_free(names: FreeNames | None) -> bool:
    """Return whether the build can be trusted, and none of the names exists."""
    return names is not None and all(
        _names_in(folder).isdisjoint(absent) for folder, absent in names.items()
    )


def _first_free(
    folder: Path, end: tuple[str, ...], content: dict[str, frozenset[str]]
) -> tuple[str, str] | None:
    """Return the first missing part of ``folder/end`` and its parent; None if all parts exist."""
    place = "/" if not folder.is_dir() else str(folder)
    for part in (*folder.parts[1:], *end) if place == "/" else end:
        if place not in content:
            content[place] = _names_in(place)
        if part not in content[place] and part != "..":
            return place, part
        place = os.path.join(place, part)
    return None


def _names_in(folder: str) -> frozenset[str]:
    try:
        return frozenset(os.listdir(folder))
    except OSError:
        return frozenset()
