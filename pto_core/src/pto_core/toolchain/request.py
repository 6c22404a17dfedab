"""Build requests, and the command lines for them."""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass, field
from pathlib import Path

from pto_core.toolchain.compilers import Compiler

# Flags that only gcc knows. Clang never emits unique symbols, so it does not need this flag.
_GCC_ONLY = frozenset({"-fno-gnu-unique"})


@dataclass(frozen=True)
class BuildRequest:
    """A request to build one shared library from one C++ source.

    ``unit``: the text of a generated translation unit that includes the source; None if the source
    itself is compiled. ``required_symbol``: the function that the library must export.
    """

    kind: str
    """The purpose of the library in messages: ``kernel``, ``orchestration`` or ``runtime``."""
    source: Path
    standard: str
    flags: tuple[str, ...]
    include_dirs: tuple[Path, ...]
    compilers: tuple[str, ...] = ()
    unit: str | None = None
    entry: str | None = None
    required_symbol: str | None = None
    environment: tuple[tuple[str, str], ...] = field(default=())
    tile_library: Path | None = None
    """The value of ``PTO_ISA_ROOT``, for messages; ``include_dirs`` contains its folders."""
    steps: tuple[tuple[str, ...], ...] = ()
    """The commands after the compiler, with ``{input}`` and ``{output}`` for their files."""
    keeps_attributes: bool = False
    """Whether the compiler knows the attributes of the device language."""
    ceilings: tuple[tuple[str, str], ...] = ()
    """The newest versions of symbols of other libraries, by the name of the version."""
    fallback: BuildRequest | None = None
    """The request that is built instead if the source does not define ``entry``."""

    @property
    def name(self) -> str:
        """The name of the library in messages, such as ``kernel add.cpp``."""
        return f"{self.kind} {self.source.name}"

    def command(self, compiler: Compiler) -> tuple[str, ...]:
        """Return the command line without the input and output files."""
        flags = self.flags
        if compiler.family == "clang":
            flags = tuple(flag for flag in flags if flag not in _GCC_ONLY)
        return (
            *compiler.command,
            f"-std={compiler.spelling(self.standard)}",
            *flags,
            *(f"-I{folder}" for folder in self.include_dirs),
        )

    def named_files(self, compiler: Compiler) -> set[Path]:
        """Return the files that words of the command line name: plugins, specs, link scripts."""
        words = (re.split("[=,@]", word) for word in self.command(compiler)[1:])
        paths = (self.source.parent / part for parts in words for part in parts)
        return {path for path in paths if os.path.isfile(path)}

    def key(self, compiler: Compiler) -> str:
        """Hash everything that determines the result except the content of the files."""
        parts = (
            compiler.identity,
            *self.command(compiler),
            str(self.source),
            self.unit or "",
            self.required_symbol or "",
            *(word for step in self.steps for word in ("step", *step)),
            "keeps attributes" if self.keeps_attributes else "",
            *(f"{name}_{version}" for name, version in self.ceilings),
            *(f"{name}={value}" for name, value in self.environment),
        )
        return hashlib.sha256("\0".join(parts).encode(errors="surrogateescape")).hexdigest()[:40]
