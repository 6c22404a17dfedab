"""Task handles: futures of ``concurrent.futures`` whose state is that of the task in the engine.

Every submit creates a handle, so a handle is an object of the native class HandleBase without any
Python attribute. The attributes of a future (a condition, waiters, callbacks) are created when
something first uses them, such as ``add_done_callback`` or ``concurrent.futures.wait``. From then
on the :class:`~pto_core.worker.event_loops.Notifier` of the Worker reports the end of the task.
"""

from __future__ import annotations

import concurrent.futures
import threading
from collections.abc import Callable, Generator
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING, Any, TypeVar as _TypeVar, cast

from pto_core._native import number
from pto_core._worker import ContinuousTensor, HandleBase, set_handle_type
from pto_core.errors import PtoError, UsageError
from pto_core.errors.values import explain_names, invalid_value
from pto_core.notebooks import html_table
from pto_core.worker.failures import CANCELLED, Failure, Result, RunErrors, place_of
from pto_core.worker.parts import TensorPart
from pto_core.worker.values import Returned, reduced_handle

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from pto_core.worker.host_accesses import HostAccesses

    Value = TypeVar("Value", default=Any)
else:
    Value = _TypeVar("Value")

_NO_TASK = -1
_UNREAD = object()
_RETRY_S = 0.005
_SLICE_S = 0.25  # the time after which a thread that waits sees that the task was cancelled


class TaskHandle(HandleBase, concurrent.futures.Future[Value]):
    """A submitted task: a future that every submit of a session returns.

    As an argument of another submit, it is the result that the task will have. Any thread may call
    the methods.
    """

    _is_over = False  # set before `has_ended` by cancel(), and if the driver failed
    _is_cancelled = False
    _is_notified = False  # whether its waiters have been notified
    _has_called_back = False  # whether its callbacks have been called
    is_captured = False  # whether the submit was only recorded
    accesses: HostAccesses | None = None  # of a checked session
    _value: object = _UNREAD  # what the function returned

    def done(self) -> bool:
        """Return whether the task has ended or was cancelled."""
        return (self._is_over or self.has_ended) and self._known_to_have_ended()

    def _known_to_have_ended(self) -> bool:
        if self.accesses is not None:
            self.accesses.task_ended(self)
        return True

    def running(self) -> bool:
        """Return whether the task was sent to a child and has not ended."""
        known = None if self.done() else self.driver.task(self.task_slot, self)
        return known is not None and bool(known["child"] >= 0)

    def cancelled(self) -> bool:
        """Return whether the task was cancelled.

        :meth:`cancel` does so, and the end of the run before the task has begun, for instance
        because the block of its session raised an exception.
        """
        if not self._is_cancelled and not self.is_captured and self.has_ended:
            result, _, root = self.failure or (Result.COMPLETED, 0, 0)
            if result == Result.POISONED and root == _NO_TASK:
                self._is_cancelled = True
        return self._is_cancelled

    def cancel(self, *, force: bool = False) -> bool:
        """Return True if the task will not run, otherwise False, because it has begun or ended.

        Tasks that need its result do not run either. Neither they nor this task make the end of
        the run raise an error. A task that has begun gets no further attempt. With ``force``, it is
        ended together with its child, which is started again; this needs
        ``on_worker_death="restart"``, otherwise it raises UsageError.
        """
        if self.cancelled():
            return True
        if self.has_ended:
            return False
        driver = self.driver
        if force:
            driver.hooks.check_restarts()
        cause = driver.add_cause(Failure.of(CancelledError(CANCELLED)).pack())
        driver.hooks.cancelled.add(cause)
        is_cancelled = driver.cancel_task(self.task_slot, cause)
        if not is_cancelled and not (force and self._kill(cause)):
            return False
        self._is_cancelled = self._is_over = True
        driver.hooks.event_loops.wake([self.task_slot])
        if "_parts" in vars(self):
            self.notify()
        return True

    def _kill(self, cause: int) -> bool:
        """End the child that runs the task. Return False if the task ended before."""
        driver, task = self.driver, self.task_slot
        driver.hooks.handled.add(task)
        while not self.has_ended:
            if driver.hooks.kill_task(task, cause):
                return True
            super().wait(_RETRY_S)
        if self.failure is not None:
            _, number, _ = self.failure
            known = driver.cause(number, self)
            if known and isinstance(Failure.unpack(known["data"]).exception, CancelledError):
                return True
        driver.hooks.handled.discard(task)
        return False

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the task has ended, with or without an error, or was cancelled.

        Return False after ``timeout`` seconds. A negative timeout counts as 0.
        """
        if self.is_captured:
            raise UsageError(
                f"{self!r} was only recorded, by Worker.graph, check or capture, or for "
                "hazards='check', and has not run, so it has no result; pass the handle itself to "
                "another submit of the function, or call Worker.run without hazards='check'"
            )
        if timeout is not None:
            seconds = number(timeout)
            if seconds is None or seconds[1] != seconds[1]:
                raise invalid_value("timeout", timeout, "pass a number of seconds, or None")
            is_over = self._is_cancelled or super().wait(max(timeout, 0)) or self._is_cancelled
            return is_over and self._known_to_have_ended()
        # the engine ends a cancelled task only when its last producer has ended
        while not self._is_cancelled and not super().wait(_SLICE_S):
            pass
        return self._known_to_have_ended()

    def exception(self, timeout: float | None = None) -> PtoError | None:
        """Wait for the task. Return its error if it failed or did not run, otherwise None.

        An error that was returned counts as handled: the end of the run does not raise it again.
        The same holds for the error of the task because of which this task did not run. Raises
        TimeoutError if the task has not ended after ``timeout`` seconds, and CancelledError if it
        was cancelled.
        """
        is_over, failure = self.wait(timeout), self.failure
        if is_over and failure is None and not self._is_cancelled:
            return None
        errors = RunErrors(self.driver)
        was_cancelled = failure is not None and failure[1] in self.driver.hooks.cancelled
        if self.cancelled() or was_cancelled or not is_over:
            name = errors.place(self.task_slot, of=self).name
            if is_over:
                raise CancelledError(f"{name} was cancelled")
            raise TimeoutError(f"{name} has not ended within {timeout} s")
        assert failure is not None
        result, cause, root = failure
        self.driver.hooks.handled.update({self.task_slot, root} - {_NO_TASK})
        if result == Result.FAILED:
            return errors.failed(self.task_slot, cause, self)
        return errors.poisoned(self.task_slot, root, self)

    def result(self, timeout: float | None = None) -> Value:
        """Wait for the task. Return the value that its function returned.

        If that is None, return the array that the task wrote, or a tuple if it wrote several
        arrays. For a group whose function returns values, return a list with the value of each
        member. Arrays in a value are read-only views of shared memory, which stays in use while
        they exist. Arrays in a heap ring are copied. Raises the error that :meth:`exception`
        returns or raises. Returns None for a task that was not submitted by a session.
        """
        if self.is_captured or self._is_cancelled or not self.has_ended or self.failure is not None:
            error = self.exception(timeout)
            if error is not None:
                raise error
        else:
            self._known_to_have_ended()
        outputs = self.outputs or ()
        if type(outputs) is Returned:
            value: Any = self._value
            if value is _UNREAD:
                value = self._value = outputs.value()
                outputs.memory.drop(self)  # it keeps this handle, and so the value
            if value is not None:
                return value  # type: ignore[no-any-return]
            outputs = outputs.written
        written = tuple(map(_kept, outputs))
        return cast("Value", written[0] if len(written) == 1 else written or None)

    def __await__(self) -> Generator[Any, None, Value]:
        """Suspend the coroutine until the task has ended; return or raise like :meth:`result`."""
        if not self._is_cancelled:
            yield from self.driver.hooks.event_loops.wait(self).__await__()
        return self.result()

    def add_done_callback(self, fn: Callable[[Any], object]) -> None:
        """Call ``fn`` with this handle when the task has ended. Raises UsageError."""
        if getattr(fn, "__module__", None) == "asyncio.tasks":  # it would wait without end
            raise UsageError(
                "asyncio.wait does not accept the handle of a task; pass "
                "asyncio.wrap_future(handle), or use asyncio.gather or asyncio.as_completed"
            )
        super().add_done_callback(fn)

    def __repr__(self) -> str:
        return "<TaskHandle of {}, {}>".format(*self._name_and_state())

    def _repr_html_(self) -> str:
        name, state = self._name_and_state()
        return html_table(name, [("state", state)])

    def _name_and_state(self) -> tuple[str, str]:
        try:
            known = self.driver.task(self.task_slot, self)
        except UsageError:
            return f"task {self.task_slot}", "of the process that forked this one"
        if self.is_captured:
            state = "captured"
        elif self.cancelled():
            state = "cancelled"
        elif self._is_over or self.has_ended:
            state = "ended" if self.failure is None else "failed"
        else:
            state = "running" if known is not None and known["child"] >= 0 else "waiting"
        name = place_of(self.task_slot, known).name if known else f"task {self.task_slot}"
        return name, state

    def __reduce_ex__(self, protocol: object = None) -> tuple[Any, ...]:
        """Pickle the handle as an argument of a submit. Raises UsageError anywhere else."""
        return reduced_handle(self)

    # ---- what concurrent.futures reads ----

    if not TYPE_CHECKING:  # checkers know the variables of a future

        @property
        def _condition(self) -> threading.Condition:
            return self._of_future()[0]

        @property
        def _waiters(self) -> list[Any]:
            return self._of_future()[1]

        @property
        def _done_callbacks(self) -> list[Any]:
            return self._of_future()[2]

        def _of_future(self) -> tuple[threading.Condition, list[Any], list[Any]]:
            """Return the three objects; at first, request the report of the end of the task."""
            made = vars(self)
            if (parts := made.get("_parts")) is not None:
                return parts
            mine = (threading.Condition(), [], [])
            parts = made.setdefault("_parts", mine)  # those of the first thread
            if parts is mine:
                if self.done():
                    self._notify_waiters()  # of other threads, which have found the parts
                else:
                    self.driver.hooks.notifier.add(self)
            return parts

        @property
        def _state(self) -> str:
            if not self.done():
                return "RUNNING"
            self._notify_waiters()  # so that each of them counts the task once
            return "CANCELLED_AND_NOTIFIED" if self.cancelled() else "FINISHED"

        @property
        def _result(self) -> Value | None:
            return None if self.exception(0) is not None else self.result(0)

        @property
        def _exception(self) -> BaseException | None:
            return self.exception(0)

    def notify(self) -> None:
        """Notify waiters, and call the callbacks, once."""
        self._is_over = True
        self._notify_waiters()
        with self._condition:
            is_first, self._has_called_back = not self._has_called_back, True
        if is_first:
            if self._done_callbacks:  # type: ignore[attr-defined]
                self._known_to_have_ended()
            self._invoke_callbacks()  # type: ignore[attr-defined]

    def _notify_waiters(self) -> None:
        with self._condition:
            if self._is_notified:
                return
            self._is_notified = True
            self._condition.notify_all()
            if self._waiters:  # concurrent.futures.wait, which does not read the state again
                self._known_to_have_ended()
            cancelled = self.cancelled()
            failed = not cancelled and self.failure is not None
            for waiter in self._waiters:
                if cancelled:
                    waiter.add_cancelled(self)
                elif failed:
                    waiter.add_exception(self)
                else:
                    waiter.add_result(self)


def _kept(output: Any) -> Any:
    is_tensor = isinstance(output, ContinuousTensor | TensorPart)
    return output.numpy().copy() if is_tensor else output


def _refused(handle: TaskHandle, *_: object) -> Any:
    raise TypeError(f"{handle!r} is not the value of the task; call handle.result() first")


for _name in ("add", "sub", "mul", "truediv", "lt", "le", "gt", "ge", "iter", "getitem"):
    setattr(TaskHandle, f"__{_name}__", _refused)
for _name in ("radd", "rsub", "rmul", "rtruediv"):
    setattr(TaskHandle, f"__{_name}__", _refused)

_RESULT = ("get", "value", "values", "fetch", "compute", "ready", "output")
explain_names(TaskHandle, dict.fromkeys(_RESULT, "handle.result() for its value"))
set_handle_type(TaskHandle)
