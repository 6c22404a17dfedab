"""Kernels: functions that run on one core."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, overload

from pto_core.errors import UsageError
from pto_core.errors.plain_functions import require_plain
from pto_core.errors.values import as_path, check_name, listed, shown
from pto_core.kernels.core_type import CoreType
from pto_core.kernels.digest import digest_of, file_digest, function_digest
from pto_core.kernels.direction import (
    Parameter,
    SignatureEntry,
    TaskSignature,
    parse_signature,
    task_signature,
)
from pto_core.kernels.lost_results import refuse_returned
from pto_core.kernels.typed import Parameters

_OPTION = re.compile("-[DUI].+")


def compiler_options(options: Iterable[str]) -> tuple[str, ...]:
    """Check the compiler options of a source; raises UsageError."""
    single = (options,) if isinstance(options, str) else options
    given = listed("options", single, "pass a list such as ['-DNAME']")
    for option in given:
        if not isinstance(option, str) or not _OPTION.fullmatch(option):
            raise UsageError(
                f"{shown(option)} is not an option of a source; use -DNAME, -DNAME=VALUE, -UNAME "
                "or -IFOLDER, each as one str",
                name="options",
                value=option,
                expected="-D, -U or -I with a value",
            )
    return given


@dataclass(frozen=True)
class KernelSource:
    """A C++ source with ``extern "C" void kernel_entry(int64_t* args)``.

    ``options``: compiler options ``-D``, ``-U`` and ``-I``. A relative folder is relative to the
    folder of the source. Raises UsageError.
    """

    path: Path
    options: tuple[str, ...] = ()

    def __init__(self, path: str | Path, options: Iterable[str] = ()) -> None:
        object.__setattr__(self, "path", as_path("path", path))
        object.__setattr__(self, "options", compiler_options(options))


class CoreCallable(Generic[Parameters]):
    """A kernel for one core type. Objects are immutable and compared by identity.

    ``binary``: a :class:`KernelSource`, the path of a shared library that exports ``kernel_entry``,
    or a Python function. ``core_type``: ``"aic"`` or ``"aiv"``. ``signature``: one
    :class:`~pto_core.kernels.Parameter` for each argument; required only for a Python function that
    runs under a C++ orchestration. Raises UsageError.

    A Python function receives a NumPy array for each device array, and an int, float or bool for
    each scalar. The array is a view of device memory and valid only during the call. The function
    writes its results into the arrays. It fails if it returns a value other than None, or if it
    assigns a new array to the name of an Out or InOut parameter. If it keeps a reference to an
    array, a RuntimeWarning is issued: the memory stays readable, even after the device is closed,
    but may be reused for other data. Calling the object calls the function on the host.
    """

    @overload
    def __init__(
        self: CoreCallable[...],
        binary: KernelSource | Path | str,
        core_type: str | CoreType,
        signature: Iterable[SignatureEntry] | None = None,
        name: str | None = None,
    ) -> None: ...

    @overload
    def __init__(
        self,
        binary: Callable[Parameters, None],
        core_type: str | CoreType,
        signature: Iterable[SignatureEntry] | None = None,
        name: str | None = None,
    ) -> None: ...

    def __init__(
        self,
        binary: KernelSource | Path | str | Callable[..., Any],
        core_type: str | CoreType,
        signature: Iterable[SignatureEntry] | None = None,
        name: str | None = None,
    ) -> None:
        self.binary = Path(binary) if isinstance(binary, str) else binary
        if not isinstance(self.binary, KernelSource | Path) and not callable(self.binary):
            raise UsageError(
                f"{shown(binary)} is not a kernel; pass a KernelSource, the path of a binary or a "
                "function",
                name="binary",
                value=binary,
            )
        require_plain("kernel", self.binary)
        self.core_type = CoreType.of(core_type)
        self.signature: tuple[Parameter, ...] | None = (
            None if signature is None else parse_signature(signature)
        )
        check_name(name)
        self.name = name or _name_of(self.binary)
        if self.function is not None:
            functools.update_wrapper(self, self.function)

    @property
    def function(self) -> Callable[..., Any] | None:
        """The Python function; None for a C++ kernel."""
        binary = self.binary
        return None if isinstance(binary, KernelSource | Path) else binary

    def task_signature(self) -> TaskSignature:
        """Return the parameters of this kernel, from its signature or from its annotations."""
        return task_signature(self.function, self.signature)

    @functools.cached_property
    def digest(self) -> bytes:
        """Return 32 bytes that identify the content. Raises UsageError if a file cannot be read."""
        return digest_of(
            "core", self.core_type.name, repr(self.signature), content_digest(self.binary)
        )

    def __call__(self, *args: Parameters.args, **kwargs: Parameters.kwargs) -> None:
        """Call the Python function with host arrays; raises UsageError if it returns a value."""
        if self.function is None:
            raise UsageError(
                f"kernel {self.name!r} is C++ and cannot be called; submit it with rt.add_task"
            )
        returned = self.function(*args, **kwargs)
        if returned is not None:
            refuse_returned("kernel", self.name, returned)

    def __repr__(self) -> str:
        return f"<CoreCallable {self.name!r} for {self.core_type.name.lower()}>"


@dataclass(frozen=True)
class KernelDecorator:
    """The decorator that converts a function to a kernel with the same parameters."""

    core: str | CoreType
    signature: Iterable[SignatureEntry] | None
    name: str | None

    def __call__(self, function: Callable[Parameters, None]) -> CoreCallable[Parameters]:
        """Return the kernel; raises UsageError."""
        return CoreCallable(function, self.core, self.signature, self.name)


def kernel(
    core: str | CoreType,
    signature: Iterable[SignatureEntry] | None = None,
    name: str | None = None,
) -> KernelDecorator:
    """Convert a Python function to a kernel for ``core`` (``"aic"`` or ``"aiv"``).

    ``signature`` and ``name`` are those of :class:`CoreCallable`::

        @kernel(core="aiv")
        def add(a, b, out):
            out[:] = a + b
    """
    if callable(core):
        raise UsageError("@kernel needs the type of core, as in @kernel(core='aiv')", name="core")
    return KernelDecorator(core, signature, name)


def content_digest(binary: KernelSource | Path | Callable[..., Any]) -> bytes:
    """Hash a source, a binary or a function; raises UsageError when the file cannot be read."""
    if not isinstance(binary, KernelSource | Path):
        return function_digest(binary)
    source = binary if isinstance(binary, KernelSource) else None
    path = binary if isinstance(binary, Path) else binary.path
    kind = "binary" if source is None else "source"
    try:
        return digest_of(kind, file_digest(path), *(source.options if source else ()))
    except OSError as error:
        raise UsageError(
            f"the {kind} {path} cannot be read: {error.strerror}", name=kind, value=str(path)
        ) from None


def _name_of(binary: KernelSource | Path | Callable[..., Any]) -> str:
    if isinstance(binary, KernelSource):
        return binary.path.stem
    if isinstance(binary, Path):
        return binary.stem
    return str(getattr(binary, "__name__", type(binary).__name__))
