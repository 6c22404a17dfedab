"""How what went wrong in a child becomes the error that the user of its Worker sees.

A child sends a failure as bytes: the name of the exception's class, its message, its traceback as
text, and the exception itself where it pickles.
"""

from __future__ import annotations

import itertools
import pickle
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pto_core.errors import (
    AbortedError,
    ChildDiedError,
    ChildHungError,
    PoisonedTask,
    PtoError,
    TaskFailedError,
    TaskPoisonedError,
)

if TYPE_CHECKING:
    from pto_core.hierarchy.processes.child_process import ChildEnding

_NAMED_MAX = 5
_CAUSES_MAX = 20

# For cutting a failure: a character takes up to 4 bytes, a name and the pickle around the texts
# little.
_CHARACTER_BYTES = 4
_LONGEST_NAME = 100
_PICKLE_BYTES = 500
_CUT = "[...]"


@dataclass(frozen=True)
class Failure:
    """An exception of a child, as it arrives."""

    type_name: str
    message: str
    traceback: str
    exception: BaseException | None

    def pack(self, most_bytes: int | None = None) -> bytes:
        """Give the bytes that a child sends; too many are cut, and leave the exception out."""
        exception = None if self.exception is None else _pickled(self.exception)
        packed = pickle.dumps((self.type_name, self.message, self.traceback, exception))
        if most_bytes is None or len(packed) <= most_bytes:
            return packed
        room = max(0, most_bytes - _PICKLE_BYTES) // (2 * _CHARACTER_BYTES)
        name, message = self.type_name[:_LONGEST_NAME], _start(self.message, room)
        return pickle.dumps((name, message, _end(self.traceback, room), None))

    @classmethod
    def of(cls, exception: BaseException) -> Failure:
        """Take down an exception where it was caught."""
        lines = traceback.format_exception(exception)
        return cls(type(exception).__qualname__, _text(exception), "".join(lines), exception)

    @classmethod
    def unpack(cls, content: bytes) -> Failure:
        """Read the bytes; an exception that cannot be made here is left out."""
        type_name, message, text, exception = pickle.loads(content)
        return cls(type_name, message, text, None if exception is None else _unpickled(exception))


@dataclass(frozen=True)
class TaskPlace:
    """Which task something is said of.

    ``child`` is the number and ``path`` the name of its child; None: it had none.
    """

    task: int
    callable: str
    file: str | None = None
    line: int | None = None
    child: int | None = None
    path: str | None = None

    @property
    def name(self) -> str:
        """The task as all messages of level 3 name it, such as ``task 3 (add, graph.py:12)``.

        Messages of the engine, which knows the number only, say ``task 3``.
        """
        return _task_name(self.task, self.callable, self.file, self.line)


def place_of(task: int, record: Mapping[str, Any] | None) -> TaskPlace:
    """Return the place of a task from the driver's record of it, None if it has no record."""
    if record is None:
        return TaskPlace(task, "of an earlier run")
    return TaskPlace(task, record["callable"], record["file"], record["line"])


def child_died(ending: ChildEnding) -> ChildDiedError:
    """Make the error for a child whose process is gone."""
    return ChildDiedError(
        f"{ending.path}: process {ending.pid} {ending.in_words}",
        child=ending.index,
        path=ending.path,
        pid=ending.pid,
        signal=ending.signal,
        exit_code=ending.exit_code,
    )


def child_hung(ending: ChildEnding, timeout_s: float | None) -> ChildHungError:
    """Make the error for a child that was ended because a task took too long."""
    limit = "its time limit" if timeout_s is None else f"its time limit of {timeout_s:g} s"
    return ChildHungError(
        f"{ending.path}: a task ran longer than {limit}, so process {ending.pid} was ended",
        child=ending.index,
        path=ending.path,
        pid=ending.pid,
        signal=ending.signal,
        timeout_s=timeout_s,
    )


def child_broken(ending: ChildEnding, words: str) -> ChildDiedError:
    """Make the error for a child that was ended because it answered what cannot be."""
    return ChildDiedError(
        f"{ending.path}: process {ending.pid} was ended because its connection broke: {words}",
        child=ending.index,
        path=ending.path,
        pid=ending.pid,
        signal=ending.signal,
        exit_code=ending.exit_code,
    )


def task_error(place: TaskPlace, failure: Failure) -> PtoError:
    """Make the error of one task that failed, or was lost with its child."""
    lost = failure.exception
    if isinstance(lost, ChildDiedError) and lost.task is None:
        return _lost(place, lost)
    error = TaskFailedError(
        f"{_origin(place, failure)}, in {place.name}",
        task=place.task,
        callable=place.callable,
        path=_path(place, failure),
        file=place.file,
        line=place.line,
        remote_traceback=failure.traceback,
        kernel=getattr(lost, "kernel", None),
        func_id=getattr(lost, "func_id", None),
        core=getattr(lost, "core", None),
    )
    error.__cause__ = lost
    if failure.traceback:
        error.add_note(f"In {place.path or 'the child'}:\n{failure.traceback.rstrip()}")
    return error


def run_error(failures: Sequence[PtoError], poisoned: Sequence[PoisonedTask]) -> PtoError:
    """Make the error of a run: the first failure, with the others and the poisoned attached."""
    first, *others = failures
    message = first.message
    if others:
        message += f"; {_count(len(others), 'other task')} failed too"
    if poisoned:
        named = [
            _task_name(one.task, one.callable, one.file, one.line) for one in poisoned[:_NAMED_MAX]
        ]
        more = len(poisoned) - len(named)
        listed = ", ".join(named) + (f" and {more} more" if more else "")
        message += f"; {_count(len(poisoned), 'task')} did not run because of that: {listed}"
    fields = {name: getattr(first, name) for name in first.fields}
    fields.update(failures=tuple(others), poisoned=tuple(poisoned))
    error = type(first)(message, **fields)
    error.__cause__ = first.__cause__
    for note in getattr(first, "__notes__", ()):
        error.add_note(note)
    return error


def poisoned_error(place: TaskPlace, root: TaskPlace | None, cause: PtoError | None) -> PtoError:
    """Make the error of one task that did not run."""
    if root is None:
        return AbortedError(f"the run was ended before {place.name} could run")
    error = TaskPoisonedError(
        f"{place.name} did not run because {root.name}, on which it depends, failed",
        task=place.task,
        callable=place.callable,
        file=place.file,
        line=place.line,
        root=root.task,
    )
    error.__cause__ = cause
    return error


def poisoned_task(place: TaskPlace, root: int | None) -> PoisonedTask:
    """Give the entry of a task in the list of a run's error."""
    return PoisonedTask(place.task, place.callable, place.file, place.line, root)


def _lost(place: TaskPlace, lost: ChildDiedError) -> ChildDiedError:
    fields = {name: getattr(lost, name) for name in lost.fields}
    fields.update(task=place.task, callable=place.callable, file=place.file, line=place.line)
    return type(lost)(f"{lost.message}, in {place.name}", **fields)


def _origin(place: TaskPlace, failure: Failure) -> str:
    """What was raised and where; an error of a child's own children names them already."""
    if _path(place, failure) != place.path:
        return failure.message
    what = f"{failure.type_name}: {failure.message}" if failure.message else failure.type_name
    return f"{place.path}: {what}" if place.path else what


def _path(place: TaskPlace, failure: Failure) -> str | None:
    inner = getattr(failure.exception, "path", None)
    is_below = isinstance(inner, str) and place.path and inner.startswith(f"{place.path}/")
    return str(inner) if is_below else place.path


def _task_name(task: int, function: str, file: str | None, line: int | None) -> str:
    where = "" if file is None else f", {file}:{line}"
    return f"task {task} ({function}{where})"


def _count(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")


def _start(text: str, most: int) -> str:
    return text if len(text) <= most else text[: max(0, most - len(_CUT))] + _CUT


def _end(text: str, most: int) -> str:
    """A traceback tells most at its end."""
    return text if len(text) <= most else _CUT + text[len(text) - max(0, most - len(_CUT)) :]


def _text(exception: BaseException) -> str:
    try:
        return str(exception)
    except Exception:  # noqa: BLE001 - an exception's own __str__ may raise anything
        return "(its message could not be made)"


def _pickled(exception: BaseException) -> bytes | None:
    """Take the exception and what caused it along, as far as that comes back."""
    chain: list[BaseException] = []
    one: BaseException | None = exception
    while one is not None and len(chain) < _CAUSES_MAX and _survives(one):
        chain.append(one)
        one = one.__cause__
    return pickle.dumps(chain) if chain else None


def _survives(exception: BaseException) -> bool:
    """Some exceptions pickle and do not unpickle."""
    try:
        pickle.loads(pickle.dumps(exception))
    except Exception:  # noqa: BLE001 - whatever __reduce__ raises
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
