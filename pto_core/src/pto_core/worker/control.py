"""Send requests to the children of a Worker, and receive a reply or an error for each."""

from __future__ import annotations

import contextlib
import pickle
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pto_core import log
from pto_core._worker import CallableKind, Driver
from pto_core.errors import ControlError, ProtocolError, PtoError, UsageError
from pto_core.worker.child_specs import ChildSpec, Kind
from pto_core.worker.failures import Failure
from pto_core.worker.handles import by_code
from pto_core.worker.registry import Registration
from pto_core.worker.serialisation import NotImportableError
from pto_core.worker.values import ValueMemory, place_of

_NAP_S = 0.01  # the time between two checks whether a request is cancelled
_PATIENCE_S = 0.02  # the time after which a child that has not replied is busy with a task


@dataclass(frozen=True)
class Lost:
    """The reply that stands for a child that has exited."""

    error: ControlError


@dataclass(frozen=True)
class _Sent:
    """A request that was sent to a child. ``block``: memory that the child reads, or None."""

    child: int
    number: int | None
    operation: str
    block: object


class Control:
    """Sends requests through a driver and awaits the replies. ``children``: by number.

    ``values``: memory of the SUB children. A request of more than ``inline_bytes`` bytes, such as a
    function with a large global variable, is sent to them as the address of a block there.
    """

    def __init__(
        self,
        driver: Driver,
        children: Sequence[ChildSpec],
        values: ValueMemory | None = None,
        inline_bytes: int = 0,
    ) -> None:
        self._driver = driver
        self._children = children
        self._values = values
        self._inline_bytes = inline_bytes
        self._untaken: list[_Sent] = []  # requests whose reply was not read yet

    def ask(self, child: int, operation: str, *arguments: Any) -> Any:
        """Send a request to one child; return its reply or raise ControlError."""
        (reply,) = self.ask_all([child], operation, *arguments)
        if isinstance(reply, Lost):
            raise reply.error
        if isinstance(reply, ControlError):
            raise reply
        return reply

    def require(self, child: int, operation: str, *arguments: Any) -> None:
        """Send a request to a child; raise ControlError if it refuses. Its exit is no error."""
        (reply,) = self.ask_all([child], operation, *arguments)
        if isinstance(reply, ControlError):
            raise reply

    def ask_all(
        self,
        children: Iterable[int],
        operation: str,
        *arguments: Any,
        is_cancelled: Callable[[], bool] | None = None,
    ) -> list[Any]:
        """Send a request to several children; return a reply, a ControlError or Lost for each.

        All children receive the request before this waits. When ``is_cancelled()`` is true, it
        stops waiting; the result for a child that has not replied is None.
        """
        self._take_replies()
        sent = self._post_all(children, operation, arguments)
        replies: list[Any] = []
        try:
            for one in sent:
                replies.append(self._reply(one, is_cancelled))
        except BaseException:  # the children may still read the request
            self._untaken += sent[len(replies) :]
            raise
        return replies

    def deliver(self, registration: Registration, children: Sequence[int]) -> None:
        """Deliver a callable to every child. If one refuses, remove it from all; raise the error.

        Children that cannot import the function receive its code. A child that was restarted
        meanwhile has the callable already. A child of this host that runs a long task handles the
        requests after the task, before the next one; an error of it is logged.
        """
        known = registration.identity
        end_s = time.monotonic() + _PATIENCE_S

        def is_late() -> bool:
            return time.monotonic() > end_s and self._driver.statistics()["in_flight"] > 0

        near = [child for child in children if self._children[child].remote is None]
        far = [child for child in children if child not in near]
        request = ("callable", known.digest, [known.delivery])
        replies = self.ask_all(far, *request) if far else []
        replies += self.ask_all(near, *request, is_cancelled=is_late)
        asked = list(zip([*far, *near], replies, strict=True))
        lacking = [child for child, reply in asked if _is_lacking(reply)]
        try:
            late = [child for child, reply in asked if reply is None and child in near]
            if late and known.kind is CallableKind.PYTHON_IMPORT:
                with contextlib.suppress(UsageError):  # the import may work
                    code = [by_code(registration.target)]
                    for child in late:
                        self.send(child, "callable", known.digest, code, True)
            if lacking:
                code = [by_code(registration.target)]
                replies += self.ask_all(
                    lacking, "callable", known.digest, code, is_cancelled=is_late
                )
            refused = (reply for reply in replies if isinstance(reply, ControlError))
            error = next((reply for reply in refused if not _is_lacking(reply)), None)
            if error is not None:
                raise error
        except PtoError:
            self.ask_all(children, "forget", known.digest, is_cancelled=is_late)
            raise

    def send(self, child: int, operation: str, *arguments: Any) -> None:
        """Send a request that a child handles before its next task. Do not wait for the reply.

        The reply is read at the next request to any child. An error in the reply is logged.
        """
        sent = self._post_all([child], operation, arguments)
        self._untaken += [one for one in sent if one.number is not None]

    def close_all(self, children: Iterable[int]) -> None:
        """Ask children to exit after the tasks that they have received, without waiting."""
        content = pickle.dumps(("close", ()))
        for child in children:
            with contextlib.suppress(PtoError):  # the child has exited
                self._driver.control(child, content)

    def _post_all(
        self, children: Iterable[int], operation: str, arguments: tuple[Any, ...]
    ) -> list[_Sent]:
        content = pickle.dumps((operation, arguments))
        block, stored = None, b""
        if self._values is not None and len(content) > self._inline_bytes:
            block = self._values.stored_bytes(content)
            stored = pickle.dumps(("stored", place_of(block)))
        sent = []
        for child in children:
            is_stored = block is not None and self._children[child].kind is Kind.SUB
            number = self._post(child, stored if is_stored else content)
            sent.append(_Sent(child, number, operation, block))
        return sent

    def _post(self, child: int, content: bytes) -> int | None:
        try:
            return self._driver.control(child, content)
        except ProtocolError:  # the child has exited
            return None

    def _take_replies(self) -> None:
        """Read the replies of :meth:`send` that have arrived."""
        untaken, self._untaken = self._untaken, []
        for one in untaken:
            try:
                content = None if one.number is None else self._driver.reply(one.number, 0.0)
                reply = self._read(one.child, content, one.operation)
            except TimeoutError:
                self._untaken.append(one)
            else:
                if isinstance(reply, ControlError):
                    log.get(__name__).error("child refused", reason=str(reply))

    def _reply(self, sent: _Sent, is_cancelled: Callable[[], bool] | None) -> Any:
        child, number, operation = sent.child, sent.number, sent.operation
        if number is None:
            return self._read(child, None, operation)
        if is_cancelled is None:
            return self._read(child, self._driver.reply(number), operation)
        while True:
            is_last = is_cancelled()
            try:
                content = self._driver.reply(number, 0.0 if is_last else _NAP_S)
            except TimeoutError:
                if is_last:
                    self._untaken.append(sent)
                    return None
            else:
                return self._read(child, content, operation)

    def _read(self, child: int, content: bytes | None, operation: str) -> Any:
        path = self._children[child].path
        if content is None:
            return Lost(
                ControlError(
                    f"{path} has exited, so it could not do {operation!r}",
                    child=child,
                    path=path,
                    operation=operation,
                )
            )
        is_done, value = pickle.loads(content)
        if is_done:
            return value
        failure = Failure.unpack(value)
        error = ControlError(
            f"{path} could not do {operation!r}: {failure.type_name}: {failure.message}",
            child=child,
            path=path,
            operation=operation,
            remote_traceback=failure.traceback,
        )
        error.__cause__ = failure.exception
        return error


def _is_lacking(reply: object) -> bool:
    return isinstance(reply, ControlError) and isinstance(reply.__cause__, NotImportableError)
