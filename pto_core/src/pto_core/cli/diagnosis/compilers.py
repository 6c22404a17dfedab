"""Check the C++ compilers: the standards that each accepts, and whether it has ``<stdfloat>``."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

from pto_core.cli.diagnosis.finding import Finding
from pto_core.config import Config
from pto_core.toolchain import HOST_COMPILERS, Compiler, find_compiler
from pto_core.toolchain.packages import gxx_advice

KERNEL_STANDARD = "c++23"


def examine(config: Config) -> Iterator[Finding]:
    """Check the compilers that the toolchain would use, and the kernel tile library."""
    yield from _configured(config)
    compilers = _installed(config)
    for compiler in compilers:
        standards = ", ".join(compiler.standards) or "no C++17"
        header = "<stdfloat>" if compiler.has_stdfloat else "no <stdfloat>"
        yield Finding(
            f"compiler {shlex.join(compiler.command)}",
            KERNEL_STANDARD in compiler.standards,
            False,
            f"{compiler.family} {compiler.version}: {standards}, {header}",
            gxx_advice(11),
        )
    with_stdfloat = [c.name for c in compilers if c.has_stdfloat]
    fit = [c.name for c in compilers if KERNEL_STANDARD in c.standards]
    yield Finding(
        "C++ for kernels",
        bool(fit),
        True,
        f"{fit[0]} is used" if fit else f"none of the compilers found accepts {KERNEL_STANDARD}",
        f"{gxx_advice(11)}, or set CXX to such a compiler",
    )
    yield Finding(
        "bfloat16 in C++ kernels",
        bool(with_stdfloat),
        False,
        "<stdfloat> works" if with_stdfloat else "no compiler has <stdfloat>",
        f"{gxx_advice(13)}, or set CXX to such a compiler",
    )
    yield _tile_library(config["pto_isa_root"])


def _configured(config: Config) -> Iterator[Finding]:
    """Report a configured compiler that cannot be run: the toolchain does not try another one."""
    wanted = config["cxx"]
    if wanted and find_compiler(wanted, config["cache_dir"]) is None:
        detail = f"{wanted!r} ({config.origin('cxx')}) cannot be run"
        fix = "set CXX to an installed compiler, or unset it for automatic selection"
        yield Finding("configured compiler", False, True, detail, fix)


def _installed(config: Config) -> list[Compiler]:
    """List each compiler once, even if it has two names, such as ``g++`` and ``g++-12``."""
    found: dict[tuple[str, ...], Compiler] = {}
    for name in filter(None, (config["cxx"], *HOST_COMPILERS)):
        compiler = find_compiler(name, config["cache_dir"])
        if compiler is not None:
            program, *arguments = compiler.command
            found.setdefault((str(Path(program).resolve()), *arguments), compiler)
    return list(found.values())


def _tile_library(root: Path | None) -> Finding:
    name = "kernel tile library"
    fix = "set PTO_ISA_ROOT to the folder that holds include/pto"
    if root is None:
        detail = "PTO_ISA_ROOT is not set; only kernels that include the library need it"
        return Finding(name, False, False, detail, fix)
    if not (root / "include" / "pto").is_dir():
        return Finding(name, False, False, f"{root} has no folder include/pto", fix)
    return Finding(name, True, False, str(root / "include"))
