"""Convert a native ``pto_error`` to the exception of the matching class."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pto_core.errors import (
    AbortedError,
    AddressError,
    CapacityError,
    CycleError,
    DeadlockError,
    DeviceLostError,
    DeviceMemoryError,
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
from pto_core.errors.plain_functions import refuse_copy, require_executed


@dataclass(frozen=True)
class _Record:
    """The members of a ``pto_error``. A member that does not apply to this error is None."""

    status: int
    message: str
    func_id: int | None = None
    task: int | None = None
    other_task: int | None = None
    core: int | None = None
    line: int | None = None
    value: int = 0
    limit: int = 0
    file: str | None = None
    kernel: str | None = None
    vendor_function: str | None = None
    vendor_code: int | None = None
    code: int | None = None


def from_status(status: int, message: str, **members: Any) -> PtoError:
    """Return the exception for a native status. ``members``: the other members of ``pto_error``.

    As in ``pto_error``, -1 and the empty string mean "does not apply". If the message does not name
    its kernel, the name is prepended. An unknown status becomes an ``InternalError``.
    """
    kernel = members.get("kernel", "") if status in _OF_KERNEL else ""
    known = {
        name: value
        for name, value in members.items()
        if value != "" and not (name in _INDICES and value < 0)
    }
    if "vendor_function" not in known:
        known.pop("vendor_code", None)
    known["code"] = members.get("code") or _CODES.get(status)
    text = _with_kernel(message or _NO_MESSAGE.format(status), kernel)
    return _MAKERS.get(status, _internal)(_Record(status, text, **known))


def _with_kernel(message: str, kernel: str) -> str:
    return f"kernel {kernel!r}: {message}" if kernel and kernel not in message else message


def from_exit(name: str, cause: BaseException) -> OrchestrationError:
    """Return the exception for an orchestration that raised SystemExit or a similar exception."""
    code = _exit_code(cause) if isinstance(cause, SystemExit) else 1
    error = OrchestrationError(
        f"orchestration {name!r} raised {type(cause).__name__}: {cause} (code {code}); "
        "an orchestration must not end the process; raise another exception",
        code=code,
    )
    error.__cause__ = cause
    return error


def _exit_code(cause: SystemExit) -> int:
    """Interpret the exit code as Python does: None means success, a text means failure."""
    if cause.code is None:
        return 0
    return cause.code if isinstance(cause.code, int) else 1


def from_result(name: str, result: object, is_copied: bool) -> PtoError | None:
    """Return the error for the result of an orchestration; None if the result is None or 0.

    ``is_copied``: whether the orchestration has returned in a forked process too.
    """
    try:
        if is_copied:
            refuse_copy("orchestration", name)
        require_executed("orchestration", name, result)
    except UsageError as error:
        return error
    if result is None:
        return None
    if isinstance(result, int) and not isinstance(result, bool):
        if result == 0:
            return None
        return OrchestrationError(
            f"orchestration {name!r} returned {result}, so the run failed; "
            "return None or 0 when everything was submitted",
            code=int(result),
        )
    return UsageError(
        f"orchestration {name!r} returned {_shown(result)}; return nothing, or an int: "
        "0 for success, any other int to fail the run; write results into Out arguments",
        name="orchestration",
        value=result,
        expected="None or an int",
    )


def _shown(value: object) -> str:
    text = f"{value!r} of type {type(value).__name__}"
    return text if len(text) <= _LONGEST_VALUE else f"a {type(value).__name__}"


def _maker(kind: type[PtoError], **fixed: str) -> Callable[[_Record], PtoError]:
    """Return a function that creates an error of class ``kind`` with the fields of a record."""
    copied = [name for name in kind.fields if name in _Record.__dataclass_fields__]

    def make(record: _Record) -> PtoError:
        return kind(record.message, **{name: getattr(record, name) for name in copied}, **fixed)

    return make


def _deadlock(record: _Record) -> PtoError:
    resource = _RESOURCES.get(record.other_task or 0)
    return DeadlockError(
        record.message,
        resource=resource,
        ring=record.core,
        needed=record.value if resource else None,
        current=record.limit if resource else None,
        settings=dict(_SETTING.findall(record.message)),
        kernel=record.kernel,
        func_id=record.func_id,
        file=record.file,
        line=record.line,
        code=record.code,
    )


def _orchestration(record: _Record) -> PtoError:
    code = record.value & 0xFFFFFFFF
    return OrchestrationError(record.message, code=code - (code >> 31 << 32))


def _address(record: _Record) -> PtoError:
    return AddressError(
        record.message,
        task=record.task,
        func_id=record.func_id,
        core=record.core,
        kernel=record.kernel,
        address=record.value,
    )


def _unsupported(record: _Record) -> PtoError:
    return UnsupportedError(
        record.message, vendor_function=record.vendor_function, vendor_code=record.vendor_code
    )


def _internal(record: _Record) -> PtoError:
    return InternalError(
        f"{record.message} (status {record.status})",
        vendor_function=record.vendor_function,
        vendor_code=record.vendor_code,
    )


# The names of the resources PTO_RESOURCE_* in pto/abi/status.h, by their numbers, and the pattern
# of a setting in a deadlock message.
_RESOURCES = {
    1: "task ring",
    2: "heap ring",
    3: "dependency pool",
    4: "tensor map",
    5: "clusters",
}
_SETTING = re.compile(r"--set ([\w.]+)=([\w,]*\w)")

# The largest length of a repr in a message; a longer repr is replaced by the type of the value.
_LONGEST_VALUE = 100
_INDICES = ("func_id", "task", "other_task", "core", "line")
_NO_MESSAGE = "native status {} without a message"

# The published codes of statuses that always have the same one: usage errors and time limits.
_CODES = {2: -5, 13: -100}

# The statuses whose errors name a kernel: kernel, address, load and timeout.
_OF_KERNEL = frozenset({8, 10, 11, 13})

# Indexed by pto_status, in the order of pto/abi/status.h.
_MAKERS: dict[int, Callable[[_Record], PtoError]] = {
    2: _maker(UsageError),
    3: _maker(CapacityError),
    4: _maker(CycleError),
    5: _maker(UnpublishedError),
    6: _deadlock,
    7: _orchestration,
    8: _maker(TaskFailedError),
    9: _maker(DeviceMemoryError, name="device memory"),
    10: _address,
    11: _maker(LoadError),
    12: _maker(AbortedError),
    13: _maker(TaskTimeoutError),
    14: _maker(DeviceLostError),
    15: _unsupported,
}
