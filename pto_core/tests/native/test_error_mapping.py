"""Each native status is raised as one exception class, with the values of its fields."""

from __future__ import annotations

import re
from importlib.resources import files
from typing import Any

import pytest

import pto_core
from pto_core import errors
from pto_core.errors.native import from_status

CLASSES = {
    "USAGE": errors.UsageError,
    "CAPACITY": errors.CapacityError,
    "CYCLE": errors.CycleError,
    "UNPUBLISHED": errors.UnpublishedError,
    "DEADLOCK": errors.DeadlockError,
    "ORCHESTRATION": errors.OrchestrationError,
    "KERNEL": errors.TaskFailedError,
    "MEMORY": errors.DeviceMemoryError,
    "ADDRESS": errors.AddressError,
    "LOAD": errors.LoadError,
    "ABORTED": errors.AbortedError,
    "TIMEOUT": errors.TaskTimeoutError,
    "LOST": errors.DeviceLostError,
    "UNSUPPORTED": errors.UnsupportedError,
    "INTERNAL": errors.InternalError,
}


def statuses() -> dict[str, int]:
    package = files(pto_core)
    for place in (package / "include", package / ".." / ".." / "include"):
        header = place / "pto" / "abi" / "status.h"
        if header.is_file():
            found = re.findall(r"PTO_ERROR_(\w+) = (\d+)", header.read_text())
            return {name: int(code) for name, code in found}
    raise FileNotFoundError("status.h")


def from_native(status: int, message: str, **given: Any) -> errors.PtoError:
    """Return the error for a ``pto_error`` whose other members do not apply."""
    members: dict[str, Any] = dict.fromkeys(("func_id", "task", "other_task", "core", "line"), -1)
    members |= dict.fromkeys(("value", "limit", "vendor_code", "code"), 0)
    members |= dict.fromkeys(("file", "kernel", "vendor_function"), "")
    return from_status(status, message, **(members | given))


def test_every_status_has_a_class() -> None:
    assert statuses().keys() == CLASSES.keys()


@pytest.mark.parametrize("name", list(CLASSES))
def test_class_and_fields(name: str) -> None:
    facts = {"func_id": 4, "task": 7, "other_task": 8, "core": 2, "line": 9}
    error = from_status(
        statuses()[name], "it failed", value=3, limit=5, file="a.cpp", kernel="add", **facts
    )
    assert type(error) is CLASSES[name]
    is_about_kernel = name in {"KERNEL", "ADDRESS", "LOAD", "TIMEOUT"}
    assert error.message.startswith("kernel 'add': it failed" if is_about_kernel else "it failed")
    for field in set(error.fields) & facts.keys():
        assert getattr(error, field) == facts[field]
    if "kernel" in error.fields:
        assert error.kernel == "add"
    if "limit" in error.fields:
        assert (error.value, error.limit) == (3, 5)


def test_fields_that_do_not_apply_are_none() -> None:
    error = from_native(8, "add failed", kernel="add")
    assert error.message == "add failed"
    assert (error.task, error.core, error.func_id) == (None, None, None)
    error = from_native(6, "it failed")
    assert [getattr(error, name) for name in ("kernel", "file", "line", "code")] == [None] * 4


@pytest.mark.parametrize("status", [2, 3, 8, 9, 11, 13, 14, 15, 16])
def test_the_code_of_a_driver_is_a_field(status: int) -> None:
    error = from_native(status, "it failed", vendor_function="aclrtMalloc", vendor_code=207001)
    assert (error.vendor_function, error.vendor_code) == ("aclrtMalloc", 207001)
    error = from_native(status, "it failed")
    assert (error.vendor_function, error.vendor_code) == (None, None)


def test_an_orchestration_may_return_a_negative_code() -> None:
    assert from_status(7, "failed", value=2**64 - 5).code == -5
    assert from_status(7, "failed", value=3).code == 3


def test_errors_have_the_published_code() -> None:
    assert [from_status(n, "failed").code for n in (2, 13)] == [-5, -100]
    assert from_status(6, "failed", code=-2).code == -2
    assert from_status(3, "failed").code is None


def test_an_unknown_status_is_our_bug() -> None:
    assert type(from_status(99, "")) is errors.InternalError
    assert "99" in str(from_status(99, ""))
