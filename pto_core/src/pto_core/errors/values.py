"""Values, names of users and signals in messages: texts, suggestions, and checks of kinds."""

from __future__ import annotations

import numbers
import os
import reprlib
import signal
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pto_core.errors import UsageError

_INT_BITS = 256
_LONGEST_S = 4_000_000
_SIGNALS = {
    "SIGSEGV": "an invalid memory access",
    "SIGBUS": "an invalid memory access",
    "SIGFPE": "an arithmetic error such as a division by zero",
    "SIGILL": "an invalid instruction",
    "SIGABRT": "abort()",
    "SIGKILL": "killed from outside, perhaps for lack of memory",
}


class _Shown(reprlib.Repr):
    """A repr of limited length and depth. If the repr of an object raises, its type is shown."""

    def __init__(self) -> None:
        super().__init__()
        self.maxstring = self.maxother = 80
        self.maxlist = self.maxtuple = self.maxdict = self.maxset = self.maxfrozenset = 8
        self.maxlevel = 4

    def repr_int(self, value: int, level: int) -> str:
        if value.bit_length() > _INT_BITS:  # Python refuses to convert some of these to a text
            return f"an integer of {value.bit_length()} bits"
        return repr(value)


shown = _Shown().repr
"""Return a short text that stands for ``value`` in a message. Raises nothing."""


def signal_text(number: int) -> str:
    """Return the name of a signal that ended a process, with its usual reason."""
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = f"signal {number}"
    return f"{name} ({_SIGNALS[name]})" if name in _SIGNALS else name


def invalid_value(name: str, value: Any, advice: str, expected: str | None = None) -> UsageError:
    """Return the error ``NAME is VALUE; ADVICE`` for a value that a program passed."""
    text = f"{name} is {shown(value)}; {advice}"
    return UsageError(text, name=name, value=value, expected=expected)


def listed(name: str, value: Any, advice: str) -> tuple[Any, ...]:
    """Return the items of an iterable that is not a text; raise UsageError for another value."""
    try:
        if not isinstance(value, str | bytes):
            return tuple(value)
    except TypeError:  # not iterable; also NumPy arrays without dimensions
        pass
    raise invalid_value(name, value, advice)


def as_path(name: str, value: Any) -> Path:
    """Return the Path of a text or path-like object; raise UsageError for another value."""
    if isinstance(value, str | os.PathLike):
        return Path(value)
    raise invalid_value(name, value, "pass a text or a Path")


def check_seconds(timeout_s: Any) -> None:
    """Raise UsageError for a time limit that is neither None nor a positive number."""
    is_number = isinstance(timeout_s, numbers.Real) and not isinstance(timeout_s, bool)
    if timeout_s is not None and not (is_number and 0 < timeout_s <= _LONGEST_S):
        advice = f"pass seconds above 0, at most {_LONGEST_S}, or None"
        raise invalid_value("timeout_s", timeout_s, advice)


def check_name(value: Any) -> None:
    """Raise UsageError for a name that is neither a text nor None."""
    if not isinstance(value, str | None):
        raise invalid_value("name", value, "pass a text")


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


def explain_names(kind: type, instead: Mapping[str, str]) -> None:
    """Let names that a class lacks raise an AttributeError that says what to write instead.

    ``{name}`` in such a text is the ``name`` of the object. A ``__getattr__`` would slow down each
    read of an attribute of the class.
    """
    for name, text in instead.items():
        if not hasattr(kind, name):
            setattr(kind, name, _ForeignName(name, text))


class _ForeignName:
    """A name of another library. Reading it raises an AttributeError."""

    def __init__(self, name: str, instead: str) -> None:
        self._name, self._instead = name, instead

    def __get__(self, owner: Any, kind: type) -> Any:
        instead = self._instead.format(name=getattr(owner, "name", kind.__name__.lower()))
        text = f"{kind.__name__!r} object has no attribute {self._name!r}; write {instead}"
        raise AttributeError(text, name=self._name, obj=owner)
