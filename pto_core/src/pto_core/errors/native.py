"""Native errors as exceptions: one ``pto_error`` becomes one member of the tree."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pto_core.errors.tree import (
    AbortedError,
    AddressError,
    CapacityError,
    CycleError,
    DeadlockError,
    DeviceLostError,
    DeviceMemoryError,
    GraphError,
    InternalError,
    LoadError,
    OrchestrationError,
    PtoError,
    TaskFailedError,
    TaskTimeoutError,
    UnpublishedError,
    UnsupportedError,
    UsageError,
)


@dataclass(frozen=True)
class _Record:
    """The members of a ``pto_error`` that apply; the others are None."""

    status: int
    message: str
    func_id: int | None
    task: int | None
    other_task: int | None
    core: int | None
    line: int | None
    value: int
    limit: int
    file: str | None
    kernel: str | None


def from_status(
    status: int,
    message: str,
    *,
    func_id: int = -1,
    task: int = -1,
    other_task: int = -1,
    core: int = -1,
    line: int = -1,
    value: int = 0,
    limit: int = 0,
    file: str = "",
    kernel: str = "",
) -> PtoError:
    """Make the exception for a native status, with the fields of its class.

    -1 and the empty string mean "does not apply", as in ``pto_error``. A message that does not name
    the kernel gets its name in front. A status that nobody knows is an ``InternalError``.
    """
    record = _Record(
        status,
        _with_kernel(message or f"native status {status} without a message", kernel),
        _applies(func_id),
        _applies(task),
        _applies(other_task),
        _applies(core),
        _applies(line),
        value,
        limit,
        file or None,
        kernel or None,
    )
    return _MAKERS.get(status, _internal)(record)


def _applies(number: int) -> int | None:
    return None if number < 0 else number


def _with_kernel(message: str, kernel: str) -> str:
    return f"kernel {kernel!r}: {message}" if kernel and kernel not in message else message


def _usage(record: _Record) -> PtoError:
    return UsageError(record.message, value=record.value)


def _capacity(record: _Record) -> PtoError:
    return CapacityError(record.message, value=record.value, limit=record.limit)


def _memory(record: _Record) -> PtoError:
    return DeviceMemoryError(
        record.message, name="device memory", value=record.value, limit=record.limit
    )


def _graph(kind: type[GraphError]) -> Callable[[_Record], PtoError]:
    return lambda record: kind(record.message, task=record.task, other_task=record.other_task)


def _deadlock(record: _Record) -> PtoError:
    return DeadlockError(
        record.message,
        value=record.value,
        limit=record.limit,
        file=record.file,
        line=record.line,
    )


def _orchestration(record: _Record) -> PtoError:
    code = record.value & 0xFFFFFFFF
    return OrchestrationError(record.message, code=code - (code >> 31 << 32))


def _task(kind: type[TaskFailedError]) -> Callable[[_Record], PtoError]:
    return lambda record: kind(
        record.message,
        task=record.task,
        func_id=record.func_id,
        core=record.core,
        kernel=record.kernel,
    )


def _address(record: _Record) -> PtoError:
    return AddressError(
        record.message,
        task=record.task,
        func_id=record.func_id,
        core=record.core,
        kernel=record.kernel,
        address=record.value,
    )


def _load(record: _Record) -> PtoError:
    return LoadError(record.message, func_id=record.func_id, kernel=record.kernel)


def _plain(kind: type[PtoError]) -> Callable[[_Record], PtoError]:
    return lambda record: kind(record.message)


def _internal(record: _Record) -> PtoError:
    return InternalError(f"{record.message} (status {record.status})")


# By pto_status, in the order of pto/abi/status.h.
_MAKERS: dict[int, Callable[[_Record], PtoError]] = {
    2: _usage,
    3: _capacity,
    4: _graph(CycleError),
    5: _graph(UnpublishedError),
    6: _deadlock,
    7: _orchestration,
    8: _task(TaskFailedError),
    9: _memory,
    10: _address,
    11: _load,
    12: _plain(AbortedError),
    13: _task(TaskTimeoutError),
    14: _plain(DeviceLostError),
    15: _plain(UnsupportedError),
}
