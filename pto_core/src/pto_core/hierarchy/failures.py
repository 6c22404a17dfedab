"""Exceptions of a child, as bytes for the parent.

A failure consists of the name of the exception's class, its message, its traceback as text, and the
exception itself if it can be pickled.
"""

from __future__ import annotations

import itertools
import pickle
import traceback
from dataclasses import dataclass

_CAUSES_MAX = 20

# Used to truncate a failure: a character takes up to 4 bytes; the class name and pickle need few.
_CHARACTER_BYTES = 4
_LONGEST_NAME = 100
_PICKLE_BYTES = 500
_CUT = "[...]"


@dataclass(frozen=True)
class Failure:
    """An exception of a child."""

    type_name: str
    message: str
    traceback: str
    exception: BaseException | None

    def pack(self, most_bytes: int | None = None) -> bytes:
        """Return the bytes. To fit ``most_bytes``, truncate the texts and drop the exception."""
        exception = None if self.exception is None else _pickled(self.exception)
        packed = pickle.dumps((self.type_name, self.message, self.traceback, exception))
        if most_bytes is None or len(packed) <= most_bytes:
            return packed
        length = max(0, most_bytes - _PICKLE_BYTES) // (2 * _CHARACTER_BYTES)
        name, message = self.type_name[:_LONGEST_NAME], start_of(self.message, length)
        return pickle.dumps((name, message, end_of(self.traceback, length), None))

    @classmethod
    def of(cls, exception: BaseException) -> Failure:
        """Return the failure for a caught exception of this process."""
        lines = traceback.format_exception(exception)
        return cls(type(exception).__qualname__, message_of(exception), "".join(lines), exception)

    @classmethod
    def unpack(cls, content: bytes) -> Failure:
        """Return the failure of these bytes. The exception is None if unpickling fails here."""
        type_name, message, text, exception = pickle.loads(content)
        return cls(type_name, message, text, None if exception is None else _unpickled(exception))


def start_of(text: str, most: int) -> str:
    """Return a text that is cut at its end to ``most`` characters."""
    return text if len(text) <= most else text[: max(0, most - len(_CUT))] + _CUT


def end_of(text: str, most: int) -> str:
    """Return a text that is cut at its start, because a traceback ends with its cause."""
    return text if len(text) <= most else _CUT + text[len(text) - max(0, most - len(_CUT)) :]


def message_of(exception: BaseException) -> str:
    """Return the message of an exception, also if its ``__str__`` raises."""
    try:
        return str(exception)
    except Exception:  # noqa: BLE001 - its __str__ may raise anything
        return "(its __str__ raised an exception)"


def _pickled(exception: BaseException) -> bytes | None:
    """Pickle the exception and its chain of causes, up to the first that cannot be pickled."""
    chain: list[BaseException] = []
    one: BaseException | None = exception
    while one is not None and len(chain) < _CAUSES_MAX and _survives(one):
        chain.append(one)
        one = one.__cause__
    return pickle.dumps(chain) if chain else None


def _survives(exception: BaseException) -> bool:
    """Return whether an exception can be pickled and unpickled; some can only be pickled."""
    try:
        pickle.loads(pickle.dumps(exception))
    except Exception:  # noqa: BLE001 - its __reduce__ may raise anything
        return False
    return True


def _unpickled(content: bytes) -> BaseException | None:
    try:
        chain = pickle.loads(content)
    except Exception:  # noqa: BLE001 - their modules may not be importable here
        return None
    for one, cause in itertools.pairwise(chain):
        one.__cause__ = cause
    return chain[0] if isinstance(chain[0], BaseException) else None
