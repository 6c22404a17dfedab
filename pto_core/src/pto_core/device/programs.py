"""The programs of a device: the callables prepared on it, and errors of their loading."""

from __future__ import annotations

import platform
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pto_core import _native
from pto_core.errors import LoadError, UsageError
from pto_core.errors.values import shown
from pto_core.interfaces import Backend, ProgramInterface, Runtime
from pto_core.kernels import (
    ChipCallable,
    CoreCallable,
    DataType,
    Direction,
    KernelSource,
    OrchestrationSource,
    Parameter,
)
from pto_core.kernels.lost_results import checked
from pto_core.toolchain import (
    BuildRequest,
    Toolchain,
    orchestration_recipe,
    program_interface,
    recipe_of,
)

# The number of cached programs of plain functions. A limit is needed, because a notebook may define
# many functions.
_KEPT_PROGRAMS = 256

Chip = ChipCallable | Callable[..., Any]


class Programs:
    """The programs of one device. Each is created when its ChipCallable is first run.

    Only the thread that uses the device may call the methods.
    """

    def __init__(
        self, native: _native.Device, backend: Backend, runtime: Runtime, toolchain: Toolchain
    ) -> None:
        self._native = native
        self._toolchain = toolchain
        self._requests = SourceRequests(toolchain, backend, runtime)
        self._programs: dict[Chip, _native.Program] = {}
        self._loaded: set[CoreCallable] = set()
        self._libraries: dict[Path, int] = {}

    def get(self, chip: Chip) -> _native.Program:
        """Return the program of ``chip``. Raises UsageError, CompileError or LoadError."""
        try:
            program = self._programs.get(chip)
        except TypeError:
            program = None
        return self._make(chip) if program is None else program

    def clear(self) -> None:
        """Drop all programs, because the device is closed."""
        self._programs.clear()
        self._loaded.clear()
        self._libraries.clear()

    def load_kernel(self, kernel: object) -> None:
        """Build and load one kernel at its first use by a Python orchestration."""
        if not isinstance(kernel, CoreCallable):
            hint = "decorate it with @kernel(core='aiv')" if callable(kernel) else "pass a @kernel"
            why = "is not a kernel"
            if getattr(kernel, "is_of_worker", False):
                why += " but a @task, which runs in a process of a Worker"
                hint = "write @kernel(core='aiv') in the place of @task"
            raise UsageError(
                f"{shown(kernel)} {why}; {hint}, or pass the func_id of a kernel in the chip",
                name="kernel",
                value=kernel,
            )
        self._load([(kernel, None)])

    def _make(self, chip: Chip) -> _native.Program:
        if isinstance(chip, CoreCallable):
            raise UsageError(
                f"{chip.name!r} is a kernel, not an orchestration; run a function that submits it: "
                f"def graph(rt, *args): rt.publish(rt.add_task({chip.name}, args))",
                name="chip",
                value=chip,
            )
        if not isinstance(chip, ChipCallable) and (isinstance(chip, type) or not callable(chip)):
            raise UsageError(
                f"{shown(chip)} cannot be run; pass a ChipCallable or a function "
                "def graph(rt, *args)",
                name="chip",
                value=chip,
            )
        described = chip if isinstance(chip, ChipCallable) else ChipCallable(chip)
        library, entry = self._build_and_load(described)
        names, required, maximum = described.parameters()
        directions, by_tensor = described.directions()
        program = _native.Program(
            name=described.name,
            parameters=names,
            required=required,
            maximum=maximum,
            directions=bytes(directions),
            codes=described.type_codes(),
            by_tensor=by_tensor,
            function=described.function,
            library=library,
            entry=entry,
        )
        for func_id, child in described.children.items():
            program.add_child(func_id, self._native, child)
        if len(self._programs) >= _KEPT_PROGRAMS:
            del self._programs[next(iter(self._programs))]
        self._programs[chip] = program
        return program

    def _build_and_load(self, chip: ChipCallable) -> tuple[int, str]:
        """Build the sources of a chip in parallel. Return the orchestration's library and entry."""
        orchestration = chip.orchestration
        api = None
        if isinstance(orchestration, OrchestrationSource):
            api = self._requests.interface(orchestration).name
        is_cpp = isinstance(orchestration, OrchestrationSource | Path)
        requests: list[BuildRequest] = []
        kernels: list[tuple[CoreCallable, int | None]] = []
        for child in dict.fromkeys(chip.children.values()):
            if is_cpp and not self._native.has_tensors:
                _check_declared(child)
            if child in self._loaded:
                continue
            is_source = isinstance(child.binary, KernelSource)
            kernels.append((child, len(requests) if is_source else None))
            if is_source:
                requests.append(self._requests.kernel(child, api))
        if isinstance(orchestration, OrchestrationSource):
            requests.append(self._requests.orchestration(orchestration))
        built = self._toolchain.build_many(requests) if requests else []
        self._load(kernels, built, {child: number for number, child in chip.children.items()})
        if isinstance(orchestration, OrchestrationSource):
            return self._library(built[-1], orchestration.path), ""
        return (self._library(orchestration), "") if isinstance(orchestration, Path) else (0, "")

    def _library(self, path: Path, source: Path | None = None) -> int:
        if path not in self._libraries:
            try:
                self._libraries[path] = self._native.load_library(str(path))
            except LoadError as error:
                raise orchestration_load_error(error, path, source) from None
        return self._libraries[path]

    def _load(
        self,
        kernels: list[tuple[CoreCallable, int | None]],
        built: list[Path] | None = None,
        func_ids: Mapping[CoreCallable, int] | None = None,
    ) -> None:
        """Load kernels. An integer in the list is the index of a library in ``built``.

        ``func_ids`` are only used in messages.
        """
        for kernel, place in kernels:
            path = kernel.binary if isinstance(kernel.binary, Path) else None
            if isinstance(kernel.binary, KernelSource):
                path = (
                    self._toolchain.build_many([self._requests.kernel(kernel)])[0]
                    if built is None or place is None
                    else built[place]
                )
            try:
                self._load_one(kernel, path)
            except LoadError as error:
                func_id = (func_ids or {}).get(kernel)
                raise kernel_load_error(error, kernel, func_id, path) from None
            self._loaded.add(kernel)

    def _load_one(self, kernel: CoreCallable, path: Path | None) -> None:
        function, signature = kernel.function, kernel.task_signature()
        self._native.load_kernel(
            kernel,
            name=kernel.name,
            core_type=int(kernel.core_type),
            path=None if path is None else str(path),
            function=None if function is None else checked(function, signature),
            declared=_declared(kernel),
            task=signature,
        )


def _declared(kernel: CoreCallable) -> list[tuple[int, tuple[int, ...] | None]] | None:
    """Return data type and shape of each argument; None if the signature does not state them."""
    if kernel.function is None or kernel.signature is None:
        return None
    is_scalar = Direction.SCALAR
    if any(one.dtype is None and one.direction is not is_scalar for one in kernel.signature):
        return None
    return [_native_parameter(parameter) for parameter in kernel.signature]


def _native_parameter(parameter: Parameter) -> tuple[int, tuple[int, ...] | None]:
    if parameter.direction is Direction.SCALAR:
        return int(DataType.INT64 if parameter.dtype is None else parameter.dtype), None
    assert parameter.dtype is not None
    return int(parameter.dtype), parameter.shape


def _check_declared(kernel: CoreCallable) -> None:
    if kernel.function is None or _declared(kernel) is not None:
        return
    raise UsageError(
        f"Python kernel {kernel.name!r} runs under a C++ orchestration, which passes no shapes; "
        "declare a signature with the type and shape of each argument, as in "
        "@kernel(core='aiv', signature=(In('float32', (64,)), Scalar(int), Out('float32', (64,))))",
        name="signature",
        value=kernel.signature,
    )


class SourceRequests:
    """Creates build requests for sources, with the flags and headers of backend and runtime."""

    def __init__(self, toolchain: Toolchain, backend: Backend, runtime: Runtime) -> None:
        self._toolchain = toolchain
        self._backend = backend
        self._runtime = runtime

    def interface(self, source: OrchestrationSource) -> ProgramInterface:
        """Return the interface for which an orchestration is written."""
        found = program_interface(self._runtime, source.path, source.api)
        if found.runtime is None:
            return found
        raise UsageError(
            f"{source.path.name} is written for the interface {found.name} of "
            f"{self._runtime.name}, which the runtime {found.runtime!r} runs; open the device with "
            f"runtime={found.runtime!r}",
            name="runtime",
            value=self._runtime.name,
            expected=found.runtime,
        )

    def kernel(self, kernel: CoreCallable, api: str | None = None) -> BuildRequest:
        """Return the build request for a kernel that is given as a KernelSource.

        ``api``: the interface of the orchestration, for a source that does not show its own.
        """
        assert isinstance(kernel.binary, KernelSource)
        core = kernel.core_type.name.lower()
        path = kernel.binary.path
        interface = program_interface(self._runtime, path, default=api)
        return self._toolchain.kernel(
            path,
            core,
            recipe_of(self._backend, core),
            interface.kernel_include_dirs,
            kernel.binary.options,
        )

    def orchestration(self, source: OrchestrationSource) -> BuildRequest:
        """Return the build request for an orchestration."""
        return self._toolchain.orchestration(
            source.path,
            source.function_name,
            self.interface(source).orchestration,
            orchestration_recipe(self._backend, self._runtime),
            source.options,
        )

    def installed_folders(self) -> set[Path]:
        """Return the folders of the headers that the backend and the runtime provide."""
        return {
            folder
            for one in self._runtime.program_interfaces()
            for build in [one.orchestration]
            for folder in (*one.kernel_include_dirs, *build.include_dirs, build.wrapper.parent)
        }


_UNDEFINED = re.compile(r"undefined symbol: (\S+)")

_NEWER_LIBRARY = re.compile(r"(\S*libstdc\+\+\S*): version [`'](\S+)' not found")

# The prefix of the functions that headers of glibc 2.38 use in place of strtol and others.
_NEWER_C_LIBRARY = "__isoc23_"

# The loader's messages for a file that is not a shared library for this machine.
_NOT_A_LIBRARY = (
    "invalid ELF header",
    "file too short",
    "wrong ELF class",
    "cannot read file data",
)


def kernel_load_error(
    error: LoadError, kernel: CoreCallable, func_id: int | None, path: Path | None
) -> LoadError:
    """Return an error that names the kernel, its file, the cause and a remedy."""
    source = kernel.binary.path if isinstance(kernel.binary, KernelSource) else None
    number = "" if func_id is None else f" (func_id {func_id})"
    text = _sentence(f"kernel {kernel.name!r}{number}", error.message, path, source)
    return LoadError(text, func_id=func_id, kernel=kernel.name)


def orchestration_load_error(error: LoadError, path: Path, source: Path | None) -> LoadError:
    """Return an error that names the orchestration's file, the cause and a remedy."""
    return LoadError(_sentence("the orchestration", error.message, path, source))


def _sentence(what: str, said: str, path: Path | None, source: Path | None) -> str:
    place = source or path
    reason = said.rpartition(f"{path}: ")[2] if path is not None else said
    undefined = _UNDEFINED.search(reason)
    if undefined is not None:
        symbol = undefined[1].partition(",")[0]
        plain = _native.demangle(symbol)
        named = plain if plain == symbol else f"{plain} (symbol {symbol})"
        cause = f"it uses {named}, which no library defines"
        advice = "define it in that source, or make it inline in a header"
        if symbol.startswith(_NEWER_C_LIBRARY):
            cause = (
                f"its compiler is for a newer C library than that of this process: it uses "
                f"{named}, which {' '.join(platform.libc_ver())} does not have"
            )
            advice = "compile it with a compiler of this machine, such as CXX=g++"
    elif (newer := _NEWER_LIBRARY.search(said)) is not None:
        cause = (
            f"its compiler has a newer C++ library than this process: it needs {newer[2]}, which "
            f"{newer[1]} does not have"
        )
        advice = (
            "link the C++ library into it with -static-libstdc++, such as "
            "CXX='g++-15 -static-libstdc++'"
        )
    elif any(words in reason for words in _NOT_A_LIBRARY):
        cause = f"the file is not a shared library for this machine ({reason})"
        advice = "pass a library that is built for this machine, or a C++ source as a KernelSource"
    elif "No such file" in reason:
        cause, advice = "the file does not exist", "pass the path of a shared library"
    else:
        cause, advice = reason, ""
    where = "" if place is None else f" from {place}"
    return f"{what} cannot be loaded{where}: {cause}" + (f"; {advice}" if advice else "")
