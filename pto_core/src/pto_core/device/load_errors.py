"""Convert errors of the dynamic loader to errors that name the kernel or the orchestration."""

from __future__ import annotations

import platform
import re
from pathlib import Path

from pto_core import _native
from pto_core.errors import LoadError
from pto_core.kernels import CoreCallable, KernelSource

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
