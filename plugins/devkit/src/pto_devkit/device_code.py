"""Check the library of a runtime variant whose code also runs on the processor of a device."""

from __future__ import annotations

from pathlib import Path

from pto_core.toolchain.diagnosis import read_symbols
from pto_devkit.checks import ContractError, expect
from pto_devkit.subjects import RuntimeSubject

FUNCTIONS = frozenset(
    (
        *("memchr", "memcmp", "memcpy", "memmove", "memset"),
        *("strchr", "strcmp", "strlen", "strncmp", "strrchr", "strstr"),
    )
)
"""The functions of other libraries that a variant may use."""

_OF_START_FILES = frozenset(
    (
        *("_ITM_deregisterTMCloneTable", "_ITM_registerTMCloneTable"),
        *("__cxa_finalize", "__gmon_start__"),
    )
)


def check_device_rules(runtime: RuntimeSubject) -> None:
    """Require a library without thread-local storage that needs only mem* and str*."""
    check_library(runtime.plugin.library())


def check_library(library: Path) -> None:
    """Require the rules of :func:`check_device_rules` for a library that was built elsewhere."""
    symbols = read_symbols(library)
    if symbols is None:
        raise ContractError(f"{library} is no shared library for this machine")
    others = symbols.needed.keys() - FUNCTIONS - _OF_START_FILES
    expect(not others, f"{library.name} needs {', '.join(sorted(others))}")
    expect(not symbols.has_thread_storage, f"{library.name} has thread-local storage")
    expect(
        symbols.exported == {"pto_runtime_entry"},
        f"{library.name} exports {', '.join(sorted(symbols.exported))}",
    )


def check_device_sources(runtime: RuntimeSubject) -> None:
    """Require that the sources and include folders of the library are installed."""
    build = runtime.plugin.device_build()
    assert build is not None
    expect(len(build.sources) > 0, "device_build() lists no source")
    for source in build.sources:
        expect(source.is_file(), f"the source {source} is not installed")
    for folder in build.include_dirs:
        expect(folder.is_dir(), f"the include folder {folder} is not installed")
