"""The "did you mean" part of messages about misspelt names."""

from __future__ import annotations

from collections.abc import Iterable


def suggestion(name: str, known: Iterable[str]) -> str:
    """Give ``; did you mean 'x'?``, or nothing when no known name is near ``name``."""
    import difflib  # only messages need it

    near = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""
