"""Exceptions of a child, as bytes for the parent.

A failure consists of the name of the exception's class, its message, its traceback as text, and the
exception itself if it can be pickled.
"""

from __future__ import annotations

import itertools
import pickle
import traceback
from collections.abc import Iterable
from dataclasses import dataclass

_CAUSES_MAX = 20

# Used to truncate a failure to a number of bytes: a character takes up to 4 bytes. The class name
# is truncated too.
_CHARACTER_BYTES = 4
_LONGEST_NAME = 100
_PICKLE_BYTES = 500
_CUT = "[...]"

# An exception or one of its causes: the name of its class, its message, and its pickle. Each
# exception is pickled separately, so that a process can read the class names without unpickling,
# which would import the classes.
Link = tuple[str, str, bytes | None]


@dataclass(frozen=True)
class Failure:
    """An exception of a child."""

    type_name: str
    message: str
    traceback: str
    exception: BaseException | None

    def pack(self, most_bytes: int | None = None) -> bytes:
        """Return the bytes. To fit ``most_bytes``, truncate the texts and drop the exception."""
        links = _links(self.exception)
        packed = pickle.dumps((self.type_name, self.message, self.traceback, links))
        if most_bytes is None or len(packed) <= most_bytes:
            return packed
        length = max(0, most_bytes - _PICKLE_BYTES) // (2 * _CHARACTER_BYTES)
        name, message = self.type_name[:_LONGEST_NAME], start_of(self.message, length)
        return pickle.dumps((name, message, end_of(self.traceback, length), []))

    @classmethod
    def of(cls, exception: BaseException) -> Failure:
        """Return the failure for a caught exception of this process."""
        lines = traceback.format_exception(exception)
        return cls(type(exception).__qualname__, message_of(exception), "".join(lines), exception)

    @classmethod
    def unpack(cls, content: bytes) -> Failure:
        """Return the failure from its bytes; its exception is None if unpickling fails here."""
        type_name, message, text, links = pickle.loads(content)
        return cls(type_name, message, text, _unpickled(links or ()))


def start_of(text: str, most: int) -> str:
    """Return a text that is cut at its end to ``most`` characters."""
    return text if len(text) <= most else text[: max(0, most - len(_CUT))] + _CUT


def end_of(text: str, most: int) -> str:
    """Return a text that is cut at its start, because a traceback ends with its cause."""
    return text if len(text) <= most else _CUT + text[len(text) - max(0, most - len(_CUT)) :]


def message_of(exception: BaseException) -> str:
    """Return the message of an exception, even if its ``__str__`` raises."""
    try:
        return str(exception)
    except Exception:  # noqa: BLE001 - its __str__ may raise anything
        return "(its __str__ raised an exception)"


def _links(exception: BaseException | None) -> list[Link]:
    found: list[Link] = []
    one = exception
    while one is not None and len(found) < _CAUSES_MAX:
        found.append((type(one).__qualname__, message_of(one), _pickled(one)))
        one = one.__cause__
    return found


def _pickled(exception: BaseException) -> bytes | None:
    """Return the pickle of an exception; None if it cannot be pickled and unpickled."""
    try:
        content = pickle.dumps(exception)
        pickle.loads(content)
    except Exception:  # noqa: BLE001 - its __reduce__ may raise anything
        return None
    return content


def _unpickled(links: Iterable[Link]) -> BaseException | None:
    """Return the exception with its causes, up to the first that cannot be unpickled here."""
    chain: list[BaseException] = []
    for _, _, content in links:
        one = None if content is None else _loaded(content)
        if one is None:
            break
        chain.append(one)
    for one, cause in itertools.pairwise(chain):
        one.__cause__ = cause
    return chain[0] if chain else None


def _loaded(content: bytes) -> BaseException | None:
    try:
        found = pickle.loads(content)
    except Exception:  # noqa: BLE001 - its module may not be importable here
        return None
    return found if isinstance(found, BaseException) else None
