"""The "did you mean" part of messages about misspelt names."""

from __future__ import annotations

from collections.abc import Iterable


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return ``; did you mean 'x'?``, or an empty text if no known name is similar to ``name``."""
    import difflib  # only needed for messages

    near = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""
