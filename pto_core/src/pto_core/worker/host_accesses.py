"""The accesses of the program to arrays that tasks of a checked session use.

The program must not write an array that a submitted task uses, and must not read an array that such
a task writes, until it has waited for the task: with the handle, with ``session.wait(array)``, or
with the handle of a task that runs after it. Whether the task has ended by chance is of no
importance, so a program has the same errors in each run.

Until then the pages of the array are protected in this process. An access is a fault, whose handler
calls no Python code: it adds a record, permits the access, and lets the thread get the exception at
its next call or loop. The end of the block raises an error that no thread has received.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterable, Iterator
from types import FrameType
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pto_core._worker import RunScope, TaskArgs, TensorArgType
from pto_core.errors import HostAccessError
from pto_core.worker.failures import TaskPlace

if TYPE_CHECKING:
    from pto_core._worker import SharedMapping, TaskHandle

_PACKAGE = os.path.dirname(os.path.dirname(__file__))
_LIBRARIES = (_PACKAGE + os.sep, os.path.dirname(str(np.__file__)) + os.sep)
_READ = (TensorArgType.INPUT, TensorArgType.INOUT)

Place = tuple[str, int]
"""A file and a line."""
Record = tuple[int, bool, list[Place], int]
"""The number of a use, whether the access is a write, the frames, and the thread."""


class _Use(NamedTuple):
    """The use of a range of addresses by a task. ``argument``: the description for messages."""

    task: TaskPlace
    argument: str
    begin: int
    end: int
    tag: TensorArgType

    @property
    def is_written(self) -> bool:
        return self.tag is not TensorArgType.INPUT

    def overlaps(self, begin: int, end: int) -> bool:
        return self.begin < end and begin < self.end


class HostAccesses:
    """Protects the arrays of the unfinished tasks of a session. Any thread may call the methods.

    ``arena``: the mapping with the arrays. With ``is_protecting=False`` the object only knows for
    which tasks the program has waited. Tasks are identified by their numbers.
    """

    def __init__(self, scope: RunScope, arena: SharedMapping, *, is_protecting: bool) -> None:
        self._scope = scope
        self._arena = range(arena.address, arena.address + arena.nbytes)
        self._is_closed = False
        self._lock = threading.RLock()
        self._uses: list[_Use] = []
        # the numbers of the uses for which the program must wait; TaskArgs keep the memory alive
        self._open: dict[int, TaskArgs] = {}
        self._accessed: set[int] = set()  # uses of memory for which an access was reported
        # by task for which the program must wait, the tasks that have ended when it has
        self._needs: dict[int, set[int]] = {}
        self._records: list[Record] = []
        self._raised: dict[int, HostAccessError] = {}  # by thread

        class Access(Exception):
            def __new__(cls) -> HostAccessError:  # type: ignore[misc]
                return self._of_thread()

        if is_protecting:
            scope.watch_accesses(self._arena.start, self._arena.stop, self._records, Access)

    def add(
        self, handle: TaskHandle, name: str, members: Iterable[TaskArgs | None], after: set[int]
    ) -> set[int]:
        """Protect the arrays of a submitted task, which runs after the tasks in ``after``.

        Return the tasks that used the arrays, and for which the program had waited.
        """
        place = TaskPlace(handle.task_slot, name, *_of_program(_frames()))
        handle.accesses = self
        ended = set[int]()
        with self._lock:
            given = [args for args in members if args is not None]
            for args, index in ((one, i) for one in given for i in range(one.tensor_count)):
                tensor, tag = args.tensors[index], args.tag(index)
                if tensor.address not in self._arena or tensor.child_memory:
                    continue
                kind = tensor.dtype.name.lower()
                text = f"{kind} array of shape {tensor.shape}, argument {index} [{tag.name}]"
                use = _Use(place, text, tensor.address, tensor.address + tensor.nbytes, tag)
                users = [one for one in self._uses if one.overlaps(use.begin, use.end)]
                ended.update(one.task.task for one in users if one.task.task not in self._needs)
                if tag in _READ:
                    after = after.union(one.task.task for one in users if one.is_written)
                self._open[len(self._uses)] = args
                self._uses.append(use)
            self._needs[place.task] = after - {place.task}
            self._protect()
        return ended - {place.task}

    def task_ended(self, handle: TaskHandle) -> None:
        """Permit accesses to the arrays of a task for which the program has waited.

        This includes the tasks before it, unless it was cancelled.
        """
        with self._lock:
            if self._is_closed:
                return
            self._permit([handle.task_slot], is_all=not handle.cancelled())

    def array_unused(self, begin: int, end: int) -> None:
        """Permit accesses to the arrays of all tasks that use this memory. They have ended."""
        with self._lock:
            found = [self._uses[number] for number in self._open]
            self._permit([use.task.task for use in found if use.overlaps(begin, end)])

    def close(self) -> HostAccessError | None:
        """Permit all accesses. Return the error of an access that no thread has received."""
        with self._lock:
            self._is_closed = True
            self._open.clear()
            self._protect()
            number = self._scope.foreign_access
            if number >= 0:
                self._records.append((number, False, [], -1))
            return self._error(self._records[0]) if self._records else None

    def _permit(self, tasks: list[int], *, is_all: bool = True) -> None:
        ended = set[int]()
        while tasks:
            ended.add(task := tasks.pop())
            needs = self._needs.pop(task, set())
            if is_all:
                tasks += needs
        for number in [one for one in self._open if self._uses[one].task.task in ended]:
            del self._open[number]
        self._protect()

    def _protect(self) -> None:
        """Protect what tasks use, except the memory for which an access was reported since."""
        for number, *_ in self._records:
            if number not in self._accessed:
                accessed = self._uses[number]
                self._accessed.update(
                    one for one in self._open if self._uses[one].overlaps(*accessed[2:4])
                )
        ranges: dict[tuple[int, int], tuple[bool, int]] = {}
        for number in self._open.keys() - self._accessed:
            use = self._uses[number]
            known = ranges.get((use.begin, use.end))
            if use.begin < use.end and (known is None or use.is_written > known[0]):
                ranges[use.begin, use.end] = use.is_written, number
        self._scope.protect([(*key, *what) for key, what in ranges.items()])

    def _of_thread(self) -> HostAccessError:
        """Return the error of the first access of this thread, which gets it now."""
        mine = threading.get_ident()
        with self._lock:
            self._protect()
            found = [record for record in self._records if record[3] == mine]
            self._records[:] = [record for record in self._records if record[3] != mine]
            if found:
                self._raised[mine] = self._error(found[0])
            return self._raised[mine]

    def _error(self, record: Record) -> HostAccessError:
        number, is_write, frames, _ = record
        use = self._uses[number]
        file, line = _of_program(frames or ())
        where = f"{file}:{line} {'writes' if is_write else 'reads'}"
        if file is None:
            where = "a thread without Python code uses"
        return HostAccessError(
            f"{where} the {use.argument} of {use.task.name}, and the program has not waited "
            "for the task; before the access, call wait(array) of the session, or result() of the "
            "task's handle",
            task=use.task.task,
            callable=use.task.callable,
            file=use.task.file,
            line=use.task.line,
            access_file=file,
            access_line=line,
        )


def _frames() -> Iterator[Place]:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        yield frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back


def _of_program(frames: Iterable[Place]) -> tuple[str | None, int | None]:
    """Return the innermost place outside of this package and NumPy."""
    found = (one for one in frames if not one[0].startswith(_LIBRARIES))
    return next(found, (None, None))
