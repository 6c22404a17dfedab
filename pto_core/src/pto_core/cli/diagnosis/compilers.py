"""C++ compilers: the standards each accepts, and whether ``<stdfloat>`` works."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pto_core.cli.diagnosis.finding import Finding
from pto_core.config import Config, child_environment
from pto_core.toolchain import HOST_COMPILERS, Compiler, find_compiler

KERNEL_STANDARD = "c++23"
_STDFLOAT = "#include <stdfloat>\nstd::bfloat16_t value = 1.0bf16;\n"
_LIMIT_S = 60


def examine(config: Config) -> Iterator[Finding]:
    """Look for the compilers that the toolchain would try, and for the kernel tile library."""
    yield from _configured(config)
    compilers = _installed(config)
    with ThreadPoolExecutor() as pool:
        stdfloat = list(pool.map(_has_stdfloat, compilers))
    for compiler, has_stdfloat in zip(compilers, stdfloat, strict=True):
        standards = ", ".join(compiler.standards) or "no C++17"
        header = "<stdfloat>" if has_stdfloat else "no <stdfloat>"
        yield Finding(
            f"compiler {shlex.join(compiler.command)}",
            KERNEL_STANDARD in compiler.standards,
            False,
            f"{compiler.family} {compiler.version}: {standards}, {header}",
            "install a newer one: apt-get install g++",
        )
    fit = [c.name for c in compilers if KERNEL_STANDARD in c.standards]
    yield Finding(
        "C++ for kernels",
        bool(fit),
        True,
        f"{fit[0]} is used" if fit else f"none of the compilers found accepts {KERNEL_STANDARD}",
        "apt-get install g++ (version 11 or newer), or set CXX to one",
    )
    yield Finding(
        "bfloat16 in C++ kernels",
        any(stdfloat),
        False,
        "<stdfloat> works" if any(stdfloat) else "no compiler has <stdfloat>",
        "install g++ 13 or newer, such as `apt-get install g++-13`, or set CXX to one",
    )
    yield _tile_library(config["pto_isa_root"])


def _configured(config: Config) -> Iterator[Finding]:
    """Say so when the compiler that was asked for does not exist; the toolchain refuses to run."""
    wanted = config["cxx"]
    if wanted and find_compiler(wanted, config["cache_dir"]) is None:
        detail = f"{wanted!r} ({config.origin('cxx')}) cannot be run"
        fix = "set CXX to an installed compiler, or unset it to have one found"
        yield Finding("configured compiler", False, True, detail, fix)


def _installed(config: Config) -> list[Compiler]:
    """Find each compiler once: ``g++`` is often ``g++-12`` under another name."""
    found: dict[tuple[str, ...], Compiler] = {}
    for name in filter(None, (config["cxx"], *HOST_COMPILERS)):
        compiler = find_compiler(name, config["cache_dir"])
        if compiler is not None:
            program, *arguments = compiler.command
            found.setdefault((str(Path(program).resolve()), *arguments), compiler)
    return list(found.values())


def _has_stdfloat(compiler: Compiler) -> bool:
    spelling = compiler.standards.get(KERNEL_STANDARD)
    if spelling is None:
        return False
    try:
        answer = subprocess.run(
            (*compiler.command, f"-std={spelling}", "-fsyntax-only", "-x", "c++", "-"),
            input=_STDFLOAT,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_LIMIT_S,
            env=child_environment(),
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return answer.returncode == 0


def _tile_library(root: Path | None) -> Finding:
    name = "kernel tile library"
    fix = "set PTO_ISA_ROOT to the folder that holds include/pto"
    if root is None:
        detail = "PTO_ISA_ROOT is not set; only kernels that include the library need it"
        return Finding(name, False, False, detail, fix)
    if not (root / "include" / "pto").is_dir():
        return Finding(name, False, False, f"{root} has no folder include/pto", fix)
    return Finding(name, True, False, str(root / "include"))
