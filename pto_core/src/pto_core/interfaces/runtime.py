"""The runtime interface: a runtime variant of level 2, which schedules tasks on a device's cores.

``pto new plugin runtime NAME`` writes a small one.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from pto_core.interfaces.plugin import Option, Plugin


@dataclass(frozen=True)
class OrchestrationBuild:
    """The recipe that compiles a C++ orchestration for the variant.

    The toolchain compiles one generated translation unit::

        #define PTO_ORCHESTRATION_ENTRY <function name of the case>
        #include "<source of the case>"
        #include "<wrapper>"

    The include path ``-I`` contains the source's own folder and each of ``include_dirs``.
    ``default_entry`` is the function name if a case names no function. It is also used, with a
    warning, if the source does not define the named function. If ``default_entry`` is None, each
    case must name an existing function.
    """

    include_dirs: tuple[Path, ...]
    wrapper: Path
    standard: str = "c++23"
    flags: tuple[str, ...] = ()
    default_entry: str | None = None


@dataclass(frozen=True)
class ProgramInterface:
    """An interface that the C++ programs of a variant are written for: headers and their use.

    The published interface has changed several times. A variant has one object for each version
    that it supports. All versions use the same native library. ``name``: the month of the version,
    such as ``"2026-08"``. ``orchestration``: the recipe for orchestrations.
    ``kernel_include_dirs``: the include folders for kernels. ``marks``: regular expressions for
    names that occur only in sources for this version. A source that does not state its interface
    has the first interface with a mark in it. ``runtime``: the name of another variant that runs
    the programs of this interface, or None.
    """

    name: str
    orchestration: OrchestrationBuild
    kernel_include_dirs: tuple[Path, ...]
    marks: tuple[str, ...] = ()
    runtime: str | None = None


@dataclass(frozen=True)
class DeviceBuild:
    """The sources of a variant's native library, for a build for the processor of a device.

    A backend whose devices run the variant on their own processor compiles the sources as one
    translation unit, which includes them in this order. The code is C++17 without exceptions,
    run-time type information, threads and thread-local storage. The only library functions that it
    calls are ``mem*`` and ``str*``. ``flags``: the compiler flags that the code needs, to which the
    backend adds its own.
    """

    sources: tuple[Path, ...]
    include_dirs: tuple[Path, ...] = ()
    standard: str = "c++17"
    flags: tuple[str, ...] = (
        *("-O2", "-fPIC", "-fvisibility=hidden", "-fvisibility-inlines-hidden"),
        *("-fno-exceptions", "-fno-rtti", "-fno-threadsafe-statics"),
    )


@runtime_checkable
class Runtime(Plugin, Protocol):
    """A runtime variant, which runs the tasks of one chip on its cores.

    The native library of :meth:`library` does the work. ``open_device`` attaches it to a backend. A
    run loads an orchestration into it, and the orchestration submits tasks. The library's function
    ``pto_runtime_entry`` receives the ``name`` of the variant and returns the table of
    ``pto/abi/runtime.h``.

    The capabilities are any of ``explicit_edges``, ``publish``, ``scopes``, ``inferred_edges`` and
    ``host_orchestration`` (the orchestration runs in the host process, with host pointers).
    """

    def library(self) -> Path:
        """Return the path of the native library that exports ``pto_runtime_entry``."""

    def device_build(self) -> DeviceBuild | None:
        """Return the installed sources of the library; None if it runs in the host process only."""

    def program_interfaces(self) -> tuple[ProgramInterface, ...]:
        """List the interfaces of C++ programs, at least one.

        The first one is that of sources that contain no mark.
        """

    def options(self) -> tuple[Option, ...]:
        """List the settings of this variant."""
