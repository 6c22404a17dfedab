"""Kernels and orchestrations: the callables of a chip, and the digests that identify them."""

from __future__ import annotations

import functools
import hashlib
import importlib
import itertools
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, MappingProxyType
from typing import Any, Generic, Literal, overload
from weakref import ref

from pto_core._native import integer
from pto_core.errors import UsageError
from pto_core.errors.plain_functions import require_plain, source_of
from pto_core.errors.values import as_path, check_name, invalid_value, listed, shown
from pto_core.kernels.direction import (
    CoreType,
    Direction,
    Parameter,
    SignatureEntry,
    TaskSignature,
    parameter_names,
    parameters_of_function,
    parse_signature,
    task_signature,
    type_code,
)
from pto_core.kernels.lost_results import refuse_returned
from pto_core.kernels.typed import Parameters

_PLAIN = (int, float, complex, str, bytes, type(None))
_numbers = itertools.count()
# The weak references have no callback. A callback would run during the destruction of a callable,
# and if a signal handler raised an exception there, the exception would be lost. Instead, dead
# references are removed when more than `_forget_limit` exist.
_registrations: dict[ref[Callable[..., Any]], int] = {}
_forget_limit = 64


def digest_of(*parts: str | bytes) -> bytes:
    """Hash texts and byte strings with their lengths: ("ab", "c") differs from ("a", "bc")."""
    hashed = hashlib.sha256()
    for part in parts:
        content = part.encode() if isinstance(part, str) else part
        hashed.update(len(content).to_bytes(8, "little"))
        hashed.update(content)
    return hashed.digest()


def file_digest(path: Path) -> bytes:
    """Hash the content of a file. Raises OSError."""
    with path.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").digest()


def function_digest(function: Callable[..., Any]) -> bytes:
    """Hash a function: its name, its code, and its default values if their types are simple.

    If a function has more state (a closure, other default values, a callable object), a
    registration number is hashed too. So two closures of the same code have different digests, in
    this process and in its forks.
    """
    function, kind = source_of(function), type(function).__name__
    code = getattr(function, "__code__", None)
    name = f"{getattr(function, '__module__', '')}:{getattr(function, '__qualname__', '')}"
    defaults = getattr(function, "__defaults__", None) or ()
    is_plain = (
        code is not None
        and not getattr(function, "__closure__", None)
        and not getattr(function, "__kwdefaults__", None)
        and all(isinstance(value, _PLAIN) for value in defaults)
    )
    state = repr(defaults) if is_plain else f"registration {_registration(function)}"
    return digest_of(kind, name, state, code_digest(code) if code else b"")


def _registration(function: Callable[..., Any]) -> int:
    """Return a number that is unique to the callable in this process."""
    if len(_registrations) >= _forget_limit:
        _forget_gone()
    try:
        return _registrations.setdefault(ref(function), next(_numbers))
    except TypeError:  # the object is not hashable, or has no weak references
        return next(_numbers)


def _forget_gone() -> None:
    global _forget_limit
    for known in list(_registrations):
        if known() is None:
            _registrations.pop(known, None)
    _forget_limit = max(_forget_limit, 2 * len(_registrations))


def code_digest(code: CodeType) -> bytes:
    """Hash the instructions, names and constants of a function, but not its line numbers."""
    constants = (
        code_digest(one) if isinstance(one, CodeType) else _constant(one).encode()
        for one in code.co_consts
    )
    return digest_of(code.co_code, *code.co_names, "constants", *constants)


def _constant(value: object) -> str:
    """Return a text for a constant; it does not depend on the iteration order of a set."""
    return repr(sorted(map(repr, value))) if isinstance(value, frozenset) else repr(value)


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
    or a Python function. ``core_type``: ``"aic"`` or ``"aiv"``, or ``"any"`` for a library if each
    submit states the type. ``signature``: one :class:`~pto_core.kernels.Parameter` for each
    argument; required only for a Python function that runs under a C++ orchestration. If that of a
    compiled kernel has no scalar, it lists the arrays, and scalars may follow. Raises UsageError.

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
        if self.core_type is CoreType.ANY and not isinstance(self.binary, Path):
            raise UsageError(
                "the core type 'any' is for the path of a compiled kernel; use 'aic' or 'aiv'",
                name="core_type",
                value=core_type,
            )
        self.signature: tuple[Parameter, ...] | None = (
            None if signature is None else parse_signature(signature)
        )
        check_name(name)
        self.name = name or _name_of(self.binary)
        if self.function is not None:
            functools.update_wrapper(self, self.function, updated=())

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
    jit: Literal["numba"] | None

    def __call__(self, function: Callable[Parameters, None]) -> CoreCallable[Parameters]:
        """Return the kernel; raises UsageError."""
        compiled = function if self.jit is None else _compiled(function)
        return CoreCallable(compiled, self.core, self.signature, self.name)


def kernel(
    core: str | CoreType,
    signature: Iterable[SignatureEntry] | None = None,
    name: str | None = None,
    *,
    jit: Literal["numba"] | None = None,
) -> KernelDecorator:
    """Convert a Python function to a kernel for ``core`` (``"aic"`` or ``"aiv"``).

    ``signature`` and ``name`` are those of :class:`CoreCallable`::

        @kernel(core="aiv")
        def add(a, b, out):
            out[:] = a + b

    ``jit="numba"`` compiles the function with ``numba.njit(nogil=True)`` at its first call, so that
    simulated cores run it at the same time. Such a kernel cannot be interrupted.
    """
    if callable(core):
        raise UsageError("@kernel needs the type of core, as in @kernel(core='aiv')", name="core")
    if jit not in (None, "numba"):
        raise invalid_value("jit", jit, "pass 'numba' or None")
    return KernelDecorator(core, signature, name, jit)


def _compiled(function: Callable[Parameters, None]) -> Callable[Parameters, None]:
    try:
        numba = importlib.import_module("numba")
    except ImportError as error:
        raise UsageError(
            f"@kernel(jit='numba') needs numba, which cannot be imported: {error}; install it "
            "with `pip install numba`, or remove jit='numba'",
            name="jit",
        ) from error
    require_plain("kernel", function)
    compiled: Callable[Parameters, None] = numba.njit(nogil=True)(function)
    return compiled


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


@dataclass(frozen=True)
class OrchestrationSource:
    """A C++ source file with the function ``function_name``, which submits the tasks.

    None selects the default name of the runtime variant, if the variant has one. ``api``: the
    interface for which the source is written, such as ``"2026-08"``; by default, the names in the
    source decide.
    """

    path: Path
    function_name: str | None = None
    options: tuple[str, ...] = ()
    api: str | None = None

    def __init__(
        self,
        path: str | Path,
        function_name: str | None = None,
        options: Iterable[str] = (),
        api: str | None = None,
    ) -> None:
        object.__setattr__(self, "path", as_path("path", path))
        object.__setattr__(self, "function_name", function_name)
        object.__setattr__(self, "options", compiler_options(options))
        object.__setattr__(self, "api", api)


class ChipCallable:
    """An orchestration with its kernels. It is immutable, and equal only to itself.

    ``orchestration``: a Python function ``def graph(rt, *args)``, an :class:`OrchestrationSource`,
    or the path of a compiled library. ``children``: kernels by ``func_id``; a Python orchestration
    may also submit kernels that are not listed. ``signature``: the direction of every array, in
    order (``("in", "in", "out")``), or of every argument if it contains ``"scalar"``. Without it,
    the annotations of a Python orchestration apply; for a C++ orchestration, every array is copied
    in, and every writable array is copied back. ``argument_names`` are used in messages. Raises
    UsageError.
    """

    def __init__(
        self,
        orchestration: Callable[..., Any] | OrchestrationSource | Path | str,
        children: Mapping[int, CoreCallable] | Iterable[tuple[int, CoreCallable]] | None = None,
        signature: Iterable[SignatureEntry] | None = None,
        name: str | None = None,
        argument_names: Iterable[str] | None = None,
    ) -> None:
        if isinstance(orchestration, str):
            orchestration = Path(orchestration)
        if not isinstance(orchestration, OrchestrationSource | Path) and not callable(
            orchestration
        ):
            raise UsageError(
                f"{shown(orchestration)} is not an orchestration; pass a function, an "
                "OrchestrationSource or the path of a library",
                name="orchestration",
                value=orchestration,
            )
        _check_function(orchestration)
        self.orchestration = orchestration
        try:
            pairs = {} if children is None else dict(children)
        except (TypeError, ValueError):
            raise invalid_value(
                "children", children, "pass a dict with a kernel for each func_id"
            ) from None
        self.children: Mapping[int, CoreCallable] = MappingProxyType(
            {_func_id(key, child): child for key, child in pairs.items()}
        )
        self.signature: tuple[Parameter, ...] | None = (
            None if signature is None else parse_signature(signature)
        )
        check_name(name)
        self.name = name or _orchestration_name(orchestration)
        self.argument_names = (
            None
            if argument_names is None
            else listed("argument_names", argument_names, "pass a list of texts")
        )

    @property
    def function(self) -> Callable[..., Any] | None:
        """The Python function; None if the orchestration is C++."""
        found = self.orchestration
        return None if isinstance(found, OrchestrationSource | Path) else found

    @functools.cached_property
    def digest(self) -> bytes:
        """Return 32 bytes that identify the content. Raises UsageError if a file cannot be read."""
        children = (
            digest_of(str(func_id), child.digest)
            for func_id, child in sorted(self.children.items())
        )
        return digest_of("chip", *self._orchestration_parts(), repr(self.signature), *children)

    def parameters(self) -> tuple[list[str], int, int]:
        """Return the known argument names, and the smallest and largest number of arguments.

        A largest number of -1 means that there is no limit.
        """
        if self.function is not None:
            return parameter_names(self.function, skip=1)
        if self.signature is not None and self._is_by_argument():
            count = len(self.signature)
            return list(self.argument_names or ()), count, count
        return list(self.argument_names or ()), 0, -1

    def directions(self) -> tuple[list[Direction], bool]:
        """Return directions and a flag: true if they cover only the arrays, not all arguments."""
        if self.signature is not None:
            given, by_tensor = self.signature, not self._is_by_argument()
            return [_copied(parameter.direction) for parameter in given], by_tensor
        if self.function is not None:
            found = parameters_of_function(self.function, skip=1)
            return [_copied(direction) for direction, _ in found], False
        return [], False

    def type_codes(self) -> list[int]:
        """Return the declared DataType for each of the :meth:`directions`, or -1."""
        if self.signature is not None:
            return [type_code(parameter) for parameter in self.signature]
        if self.function is not None:
            return [code for _, code in parameters_of_function(self.function, skip=1)]
        return []

    def declared_scalars(self) -> list[int]:
        """Return the :meth:`type_codes` of the parameters that are declared as scalars."""
        declared = zip(self.directions()[0], self.type_codes(), strict=True)
        return [code for direction, code in declared if direction is Direction.SCALAR]

    def __repr__(self) -> str:
        return f"<ChipCallable {self.name!r} with {len(self.children)} kernels>"

    def _is_by_argument(self) -> bool:
        return any(p.direction is Direction.SCALAR for p in self.signature or ())

    def _orchestration_parts(self) -> tuple[str | bytes, ...]:
        found = self.orchestration
        if isinstance(found, OrchestrationSource):
            return found.function_name or "", content_digest(
                KernelSource(found.path, found.options)
            )
        return "", content_digest(found)


def _copied(direction: Direction) -> Direction:
    """Return the direction in which a run copies an array whose parameter has ``direction``."""
    if direction is Direction.NO_DEP:
        raise UsageError(
            "NoDep is a direction of task arguments; it does not state whether a run copies the "
            "array; declare the orchestration's argument In, Out or InOut",
            name="signature",
            value="NoDep",
            expected="In, Out or InOut",
        )
    return Direction.OUT if direction is Direction.OUT_EXISTING else direction


def _check_function(orchestration: object) -> None:
    if isinstance(orchestration, CoreCallable):
        raise UsageError(
            f"{orchestration.name!r} is a kernel, not an orchestration; pass a function that "
            "submits the kernel with rt.add_task",
            name="orchestration",
            value=orchestration,
        )
    if getattr(orchestration, "is_of_worker", False):
        name = getattr(orchestration, "name", "task")
        raise UsageError(
            f"{name!r} is a @task, which runs in a process of a Worker, not on a chip; submit it "
            f"with worker.submit({name}, ...). For a chip, pass a "
            "function that submits a @kernel: def graph(rt, *args)",
            name="orchestration",
            value=name,
        )
    require_plain("orchestration", orchestration)


def _func_id(key: object, child: object) -> int:
    func_id = integer(key, 0, 2**31 - 1)
    if func_id is None:
        raise UsageError(
            f"func_id {shown(key)} of {shown(child)} is not valid; use an integer from 0 to "
            "2**31 - 1",
            name="func_id",
            value=key,
        )
    if not isinstance(child, CoreCallable):
        raise UsageError(
            f"the kernel with func_id {func_id} is {shown(child)}; pass a CoreCallable or a "
            "@kernel",
            name="children",
            value=child,
        )
    return func_id


def _orchestration_name(orchestration: Callable[..., Any] | OrchestrationSource | Path) -> str:
    if isinstance(orchestration, OrchestrationSource):
        return orchestration.function_name or orchestration.path.stem
    if isinstance(orchestration, Path):
        return orchestration.stem
    return str(getattr(orchestration, "__name__", type(orchestration).__name__))
