"""Exceptions of a child, as bytes for the parent.

A failure consists of the name of the exception's class, its message, its traceback as text, and the
exception itself if it can be pickled. The parent makes the errors of tasks and runs of it.
"""

from __future__ import annotations

import contextlib
import itertools
import pickle
import traceback
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass, replace
from enum import IntEnum
from types import CodeType, GetSetDescriptorType, MemberDescriptorType, TracebackType
from typing import TYPE_CHECKING, Any, ClassVar

from pto_core._worker import Driver
from pto_core.errors import (
    AbortedError,
    ChildDiedError,
    PoisonedTask,
    PtoError,
    TaskFailedError,
    TaskPoisonedError,
)
from pto_core.worker.serialisation import serialised

if TYPE_CHECKING:
    from pto_core._worker import RunScope, TaskHandle

_CAUSES_MAX = 20
CANCELLED = "the program cancelled the task"

# Used to truncate a failure to a number of bytes: a character takes up to 4 bytes. The class name
# is truncated too.
_CHARACTER_BYTES = 4
_LONGEST_NAME = 100
_PICKLE_BYTES = 500
_CUT = "[...]"
_WITH_ADVICE = (SyntaxError, NameError, AttributeError, ImportError)  # lines that Python adds
_FORMATTED_MAX = 100  # of texts of tracebacks that are kept

# An exception or one of its causes: the name of its class, its message, and its pickle. Each
# exception is pickled separately, so that a process can read the class names without unpickling,
# which would import the classes.
Link = tuple[str, str, bytes | None]


class Result(IntEnum):
    """The result of a task."""

    COMPLETED = 0
    FAILED = 1
    POISONED = 2


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
        text = _traceback_of(exception)
        return cls(type(exception).__qualname__, message_of(exception), text, exception)

    @classmethod
    def unpack(cls, content: bytes) -> Failure:
        """Return the failure from its bytes; its exception is None if unpickling fails here."""
        type_name, message, text, links = pickle.loads(content)
        return cls(type_name, message, text, _unpickled(links or ()))


_formatted: dict[tuple[int, ...], tuple[str, list[CodeType]]] = {}
"""The text of the frames of a traceback, by their code and position, which the value keeps alive.

To format the frames takes about 0.3 ms, and many tasks fail in the same place.
"""


def _traceback_of(exception: BaseException) -> str:
    """Return the traceback of an exception as text, without the frames that call a task."""
    first = exception.__traceback__
    while first is not None and first.tb_next is not None and _calls_a_task(first):
        first = first.tb_next
    is_chained = exception.__cause__ is not None or exception.__context__ is not None
    if is_chained or first is None or isinstance(exception, BaseExceptionGroup):
        return "".join(traceback.format_exception(type(exception), exception, first))
    places: list[int] = []
    codes: list[CodeType] = []
    one: TracebackType | None = first
    while one is not None:
        codes.append(one.tb_frame.f_code)
        places += id(codes[-1]), one.tb_lasti
        one = one.tb_next
    key = tuple(places)
    if key not in _formatted:
        if len(_formatted) == _FORMATTED_MAX:
            _formatted.clear()
        _formatted[key] = "".join(traceback.format_tb(first)), codes
    return f"Traceback (most recent call last):\n{_formatted[key][0]}{_last_lines(exception)}"


def _last_lines(exception: BaseException) -> str:
    """Return the lines of a traceback after its frames; the usual form in a tenth of the time."""
    kind, text = type(exception), message_of(exception)
    if isinstance(exception, _WITH_ADVICE) or hasattr(exception, "__notes__") or not text:
        return "".join(traceback.format_exception_only(exception))
    module = "" if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}."
    return f"{module}{kind.__qualname__}: {text}\n"


def _calls_a_task(one: TracebackType) -> bool:
    return one.tb_frame.f_globals.get("__name__") == "pto_core.worker.tasks"


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
    """Return the pickle of an exception; None if it cannot be pickled and unpickled.

    A builtin class is not checked, because the check takes as long as the pickling: the program
    shows an exception that it cannot unpickle by its text. By default, unpickling calls
    ``__init__`` with ``args``. For a class that requires other arguments, the pickle contains
    its attributes instead. A class of the main module that this process received by code is sent
    back by code; the program then finds its own class.
    """
    is_of_main = type(exception).__module__ == "__main__"
    ways = (pickle.dumps, serialised) if is_of_main else (pickle.dumps,)
    for dumped, form in itertools.product(ways, (exception, _Attributes(exception))):
        try:
            content: bytes = dumped(form)
            if type(exception).__module__ != "builtins":
                pickle.loads(content)
        except Exception:  # noqa: BLE001 - its __reduce__ may raise anything
            continue
        return content
    return None


@dataclass(frozen=True)
class _Attributes:
    """An exception, pickled without its ``__init__``."""

    exception: BaseException

    def __reduce__(self) -> tuple[Any, ...]:
        one = self.exception
        return _of_attributes, (type(one), one.args, vars(one))


def _of_attributes(
    kind: type[BaseException], args: tuple[Any, ...], attributes: dict[str, Any]
) -> BaseException:
    made = kind.__new__(kind, *args)
    made.args = args
    vars(made).update(attributes)
    return made


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


_OF_THE_INTERPRETER = (StopIteration, StopAsyncIteration)
_NAMED_MAX = 5
_NONE = -1
# The failure of a task that exceeded its time limit, if the child exited before the Worker killed
# it.
_UNEXPLAINED = Failure.of(AbortedError("the task exceeded its time limit, and its child exited"))


@dataclass(frozen=True)
class TaskPlace:
    """A task, its position in the program, and the child that ran it, as errors state them.

    ``child``: the number of the child that ran the task; ``path``: the name of that child. Both are
    None if no child ran the task.
    """

    task: int
    callable: str
    file: str | None = None
    line: int | None = None
    child: int | None = None
    path: str | None = None

    @property
    def name(self) -> str:
        """Return the name of the task in the messages of a Worker: ``task 3 (add, graph.py:12)``.

        The messages of the engine contain only ``task 3``, because the engine has no more
        information.
        """
        return _task_name(self.task, self.callable, self.file, self.line)


def place_of(task: int, record: Mapping[str, Any] | None) -> TaskPlace:
    """Return the place of a task from the driver's record; None means that the record is gone."""
    if record is None:
        return TaskPlace(task, "of an earlier run")
    return TaskPlace(task, record["callable"], record["file"], record["line"])


class RunErrors:
    """The errors of the tasks of one driver, whose hooks have the names of its children.

    The parameter ``of`` of the methods is a task handle or a scope, which selects its run.
    """

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    def run(
        self,
        failed: Sequence[tuple[int, int]],
        poisoned: Sequence[tuple[int, int]],
        of: RunScope,
    ) -> PtoError:
        """Return the error of a run from pairs of (task, cause) and (task, root)."""
        listed = [poisoned_task(self.place(task, of=of), _number(root)) for task, root in poisoned]
        if not failed:
            (task, root), *_ = poisoned
            if root != _NONE:  # a task of another run
                return self.poisoned(task, root, of)
            return AbortedError("the run was ended before all of its tasks could run")
        return run_error([self.failed(task, cause, of) for task, cause in failed], listed)

    def failed(self, task: int, cause: int, of: TaskHandle | RunScope) -> PtoError:
        """Return the error of a task that failed."""
        known = self._driver.cause(cause, of)
        assert known is not None
        failure = Failure.unpack(known["data"]) if known["data"] else _UNEXPLAINED
        return task_error(self.place(task, known["child"], of=of), failure)

    def poisoned(self, task: int, root: int, of: TaskHandle | RunScope) -> PtoError:
        """Return the error of a task that did not run; ``root``: the task that poisoned it."""
        described = self._driver.task(root, of)
        because = None if described is None else self.failed(root, described["cause"], of)
        return poisoned_error(self.place(task, of=of), self.place(root, of=of), because)

    def place(self, task: int, child: int = _NONE, *, of: TaskHandle | RunScope) -> TaskPlace:
        """Return the place of a task; only its number is known if its record is gone."""
        known = self._driver.task(task, of)
        place = place_of(task, known)
        if known is None:
            return place
        child = known["child"] if child == _NONE else child
        path = None if child == _NONE else self._driver.hooks.paths[child]
        return replace(place, child=_number(child), path=path)


def task_error(place: TaskPlace, failure: Failure) -> PtoError:
    """Return the error of a task that failed or was lost together with its child."""
    lost = failure.exception
    if isinstance(lost, ChildDiedError) and lost.task is None:
        return _lost(place, lost)
    error = failed_with(_user_class(lost))(
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
    if isinstance(error, UserTaskFailedError):
        error.adopt()
    if failure.traceback:
        error.add_note(f"In {place.path or 'the child'}:\n{failure.traceback.rstrip()}")
    return error


class UserTaskFailedError(TaskFailedError):
    """The base of the classes that are a TaskFailedError and also ``kind``, a class of the program.

    Attributes that a TaskFailedError does not have are those of the exception that the task raised.
    """

    kind: ClassVar[type[Exception]]

    def __init__(self, message: str, **fields: Any) -> None:
        # not the __init__ of `kind`, which may require other arguments
        Exception.__init__(self, message)
        self._message = message
        for name in self.fields:
            setattr(self, name, fields.get(name))

    @property
    def message(self) -> str:
        """The whole message; ``args`` are those of the exception that the task raised."""
        return self._message

    def __str__(self) -> str:
        return self._message

    def adopt(self) -> None:
        """Copy ``args``, and the attributes that are not in a dictionary, such as ``errno``."""
        raised = self._raised()
        if not isinstance(raised, self.kind):
            return
        self.args = raised.args
        for kind in self.kind.__mro__[: self.kind.__mro__.index(Exception)]:
            for name, thing in vars(kind).items():
                is_stored = isinstance(thing, MemberDescriptorType | GetSetDescriptorType)
                if is_stored and name not in (*self.fields, "__dict__", "__weakref__"):
                    with contextlib.suppress(Exception):  # not set, or read-only
                        setattr(self, name, getattr(raised, name))

    def _raised(self) -> BaseException | None:
        raised = self.__cause__
        while isinstance(raised, TaskFailedError):
            raised = raised.__cause__
        return raised

    def __getattr__(self, name: str) -> Any:
        raised = self._raised()
        if raised is None or name.startswith("_"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(raised, name)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle it as a TaskFailedError; the receiver may not have the class of the program."""
        make, (_, *arguments), *state = super().__reduce__()
        return make, (TaskFailedError, *arguments), *state


_combined: dict[type[BaseException], type[TaskFailedError]] = {}


def failed_with(kind: type[BaseException]) -> type[TaskFailedError]:
    """Return a TaskFailedError that is also ``kind``, so that ``except kind`` catches it.

    Returns TaskFailedError itself for our own errors, for classes such as SystemExit, which have a
    meaning for the interpreter, and for a class that no other class can be combined with.
    """
    if kind not in _combined:
        _combined[kind] = _combination(kind)
    return _combined[kind]


def _combination(kind: type[BaseException]) -> type[TaskFailedError]:
    is_ours = issubclass(kind, PtoError)
    if is_ours or not issubclass(kind, Exception) or issubclass(kind, _OF_THE_INTERPRETER):
        return TaskFailedError
    space = {"__module__": TaskFailedError.__module__, "__doc__": TaskFailedError.__doc__}
    bases: tuple[type, ...] = (UserTaskFailedError, kind)
    try:
        made = type(TaskFailedError.__name__, bases, {**space, "kind": kind})
        made("")
    except Exception:  # noqa: BLE001 - the class of a program may raise anything
        return TaskFailedError
    return made


def _user_class(raised: BaseException | None) -> type[BaseException]:
    """Return the class of what a task raised, also below other Workers."""
    while isinstance(raised, TaskFailedError):
        if isinstance(raised, UserTaskFailedError):
            return raised.kind
        raised = raised.__cause__
    return TaskFailedError if raised is None else type(raised)


def run_error(failures: Sequence[PtoError], poisoned: Sequence[PoisonedTask]) -> PtoError:
    """Return the error of a run: the first failure, with other failures and poisoned tasks."""
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
    if isinstance(error, UserTaskFailedError):
        error.adopt()
    for note in getattr(first, "__notes__", ()):
        error.add_note(note)
    return error


def poisoned_error(place: TaskPlace, root: TaskPlace, cause: PtoError | None) -> PtoError:
    """Return the error of a task that did not run because the task ``root`` failed."""
    happened = "was cancelled" if isinstance(cause, CancelledError) else "failed"
    error = TaskPoisonedError(
        f"{place.name} did not run because {root.name}, on which it depends, {happened}; submit "
        "that task again; if it wrote an array, a task that has the array as Out can replace it",
        task=place.task,
        callable=place.callable,
        file=place.file,
        line=place.line,
        root=root.task,
    )
    error.__cause__ = cause
    return error


def poisoned_task(place: TaskPlace, root: int | None) -> PoisonedTask:
    """Return the entry for a task that did not run, for the error of its run."""
    return PoisonedTask(place.task, place.callable, place.file, place.line, root)


def _lost(place: TaskPlace, lost: ChildDiedError) -> ChildDiedError:
    fields = {name: getattr(lost, name) for name in lost.fields}
    fields.update(task=place.task, callable=place.callable, file=place.file, line=place.line)
    return type(lost)(f"{lost.message}, in {place.name}", **fields)


def _origin(place: TaskPlace, failure: Failure) -> str:
    """Return the path, type and message of an error; a nested child's error has its own path."""
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


def _number(number: int) -> int | None:
    return None if number == _NONE else number
