"""Check this machine, and show for each problem the command that fixes it."""

from __future__ import annotations

import argparse
import ctypes
import importlib.util
import os
import platform
import resource
import shlex
import shutil
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from pto_core.cli.card import check_card
from pto_core.cli.show import show_json, show_table
from pto_core.config import Config, load_core
from pto_core.plugins import inspect_all, installation
from pto_core.toolchain import HOST_COMPILERS, Compiler, find_compiler
from pto_core.toolchain.cache import ArtefactCache
from pto_core.toolchain.compilers import gxx_advice, python_headers_advice
from pto_core.trust import reason_for_distrust

_NOT_AVAILABLE = 5
_CELL_MAX = 70
_KERNEL_STANDARD = "c++23"
_OPTIONAL = {"torch": "tensors of torch as inputs", "numba": "Python kernels without the GIL"}
_MIB = 2**20
_CACHE_NEEDS_BYTES = 256 * _MIB
_SHARED_MEMORY_NEEDS_BYTES = 64 * _MIB
_FUTEX_NUMBER = {"x86_64": 202, "aarch64": 98}
_FUTEX_WAKE = 1


@dataclass(frozen=True)
class Finding:
    """The name of the check, whether it passed, and how to fix a failure.

    If ``required`` is true, the chosen backend cannot run cases unless the check passes. ``fix`` is
    a command or an instruction; it may be empty only if the check cannot fail.
    """

    name: str
    ok: bool
    required: bool
    detail: str
    fix: str = ""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``pto doctor``."""
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--card", action="store_true", help="try a card in stages instead")
    parser.add_argument("--report", type=Path, metavar="FILE", help="with --card: write a report")


def run(namespace: argparse.Namespace) -> int:
    """Print the findings; return 0 if the chosen backend can run cases here, otherwise 5."""
    if namespace.card or namespace.report:
        return check_card(namespace.set, namespace.report, as_json=namespace.json)
    config = load_core(set_=namespace.set)
    findings = [_without_unneeded_fix(finding) for finding in examine(config)]
    works = all(finding.ok for finding in findings if finding.required)
    if namespace.json:
        show_json({"works": works, "findings": [asdict(finding) for finding in findings]})
        return 0 if works else _NOT_AVAILABLE
    rows = [(_verdict(f), f.name, _in_a_cell(f)) for f in findings]
    show_table("doctor", ("", "what", "found"), rows, _problems(findings))
    backend = f"backend {config['backend']}"
    print(f"{backend} can run here" if works else f"{backend} cannot run here: see MISSING")
    return 0 if works else _NOT_AVAILABLE


def _in_a_cell(finding: Finding) -> str:
    is_short = finding.ok or len(finding.detail) <= _CELL_MAX
    return finding.detail if is_short else "not usable"


def _problems(findings: Sequence[Finding]) -> list[str]:
    """Return a note for each problem, with the text that does not fit in the table."""
    return [
        f"{finding.name}: {finding.detail}. To fix it: {finding.fix}"
        for finding in findings
        if not finding.ok
    ]


def _without_unneeded_fix(finding: Finding) -> Finding:
    return replace(finding, fix="") if finding.ok else finding


def _verdict(finding: Finding) -> str:
    if finding.ok:
        return "ok"
    return "MISSING" if finding.required else "optional"


def examine(config: Config) -> list[Finding]:
    """Run all checks. They write no files except the cache of compiler versions."""
    return [*examine_compilers(config), *examine_python(config), *examine_system(config)]


def examine_compilers(config: Config) -> Iterator[Finding]:
    """Check the compilers that the toolchain would use, and the kernel tile library."""
    yield from _configured(config)
    compilers = _installed(config)
    for compiler in compilers:
        standards = ", ".join(compiler.standards) or "no C++17"
        header = "<stdfloat>" if compiler.has_stdfloat else "no <stdfloat>"
        yield Finding(
            f"compiler {shlex.join(compiler.command)}",
            _KERNEL_STANDARD in compiler.standards,
            False,
            f"{compiler.family} {compiler.version}: {standards}, {header}",
            gxx_advice(11),
        )
    with_stdfloat = [c.name for c in compilers if c.has_stdfloat]
    fit = [c.name for c in compilers if _KERNEL_STANDARD in c.standards]
    yield Finding(
        "C++ for kernels",
        bool(fit),
        True,
        f"{fit[0]} is used" if fit else f"none of the compilers found accepts {_KERNEL_STANDARD}",
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
    """Report a configured compiler that cannot be run, because the toolchain tries no other."""
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


def examine_python(config: Config) -> Iterator[Finding]:
    """Check the Python interpreter and its installed packages."""
    header = Path(sysconfig.get_path("include")) / "Python.h"
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    yield Finding("Python", True, True, f"{platform.python_version()} at {sys.executable}")
    yield Finding(
        "Python headers",
        header.is_file(),
        False,
        str(header.parent) if header.is_file() else f"{header} does not exist",
        f"{python_headers_advice(version)}; needed only to build from source",
    )
    yield from _plugins(config)
    for module, purpose in _OPTIONAL.items():
        there = importlib.util.find_spec(module) is not None
        detail = "installed" if there else f"not installed; it adds {purpose}"
        yield Finding(module, there, False, detail, f"pip install {module}")


def _plugins(config: Config) -> Iterator[Finding]:
    """Report all plugins. The chosen backend and runtime are required."""
    found = inspect_all()
    for family, purpose in (("backend", ""), ("runtime", ""), ("transport", "; a Worker needs it")):
        name = config[family]
        if not any(f.record.family == family and name in f.record.names for f in found):
            fix = installation(family, name) or f"choose another with --set {family}=NAME"
            yield Finding(f"{family} {name}", False, not purpose, f"not installed{purpose}", fix)
    for each in found:
        record = each.record
        is_level_2 = record.family in ("backend", "runtime")
        required = is_level_2 and config[record.family] in record.names
        detail = each.health.reason
        if each.health.ok:
            detail = f"{record.source}, {each.health.label}".removesuffix(", ")
        name = f"{record.family} {record.name}"
        yield Finding(name, each.health.ok, required, detail, each.health.fix)


def examine_system(config: Config) -> Iterator[Finding]:
    """Check the limits of the system and the cache folder; create no files."""
    cores = len(os.sched_getaffinity(0))
    yield Finding("cores", True, True, f"{cores} of {os.cpu_count()} may be used")
    yield _futex()
    yield _anonymous_memory()
    yield _shared_memory(Path("/dev/shm"))
    yield _locked_memory()
    yield _cache_folder(
        config["cache_dir"], config.origin("cache_dir"), config["cache_limit_bytes"]
    )


def _futex() -> Finding:
    name, fix = "futex", "allow the futex system call in the sandbox or seccomp profile"
    number = _FUTEX_NUMBER.get(platform.machine())
    if number is None:
        detail = f"not known on {platform.machine()}; the simulator is built for x86-64 and AArch64"
        return Finding(name, False, True, detail, "use an x86-64 or AArch64 machine")
    word = ctypes.c_uint32(0)
    library = ctypes.CDLL(None, use_errno=True)
    woken = library.syscall(number, ctypes.byref(word), _FUTEX_WAKE, 1, None, None, 0)
    if woken != 0:
        return Finding(name, False, True, f"refused: {os.strerror(ctypes.get_errno())}", fix)
    return Finding(name, True, True, "works", fix)


def _anonymous_memory() -> Finding:
    name, fix = "memfd", "allow the memfd_create system call in the sandbox or seccomp profile"
    try:
        os.close(os.memfd_create("pto-doctor"))
    except OSError as error:
        return Finding(name, False, True, f"refused: {error.strerror}", fix)
    return Finding(name, True, True, "works", fix)


def _shared_memory(folder: Path) -> Finding:
    fix = f"mount -o remount,size=1G {folder}, or for a container --shm-size=1g"
    if not os.access(folder, os.W_OK):
        detail = f"{folder} does not exist or is not writable"
        return Finding("shared memory", False, False, detail, fix)
    free, total = _free_and_total_bytes(folder)
    detail = f"{free // _MIB} MiB free of {total // _MIB} MiB in {folder}"
    return Finding("shared memory", free >= _SHARED_MEMORY_NEEDS_BYTES, False, detail, fix)


def _locked_memory() -> Finding:
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    unlimited = soft == resource.RLIM_INFINITY
    detail = "no limit" if unlimited else f"at most {soft // 1024} KiB"
    return Finding("locked memory", True, False, detail)


def _cache_folder(folder: Path, origin: str, limit_bytes: int) -> Finding:
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    fix = "set cache_dir (PTO_CACHE_DIR) to a writable folder with 256 MiB of free space"
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        detail = f"{folder} ({origin}) cannot be written"
        return Finding("cache folder", False, True, detail, fix)
    if (reason := reason_for_distrust(folder)) is not None:
        return Finding("cache folder", False, True, f"not used: {reason}", fix)
    free, _ = _free_and_total_bytes(existing)
    count, used = ArtefactCache(folder).size()
    limit = f"at most {limit_bytes // _MIB} MiB (cache_limit_bytes)" if limit_bytes else "no limit"
    held = f"{count} artefacts of {used // _MIB} MiB, {limit}"
    detail = f"{folder} ({origin}), {held}; {free // _MIB} MiB free"
    return Finding("cache folder", free >= _CACHE_NEEDS_BYTES, True, detail, fix)


def _free_and_total_bytes(folder: Path) -> tuple[int, int]:
    usage = shutil.disk_usage(folder)
    return usage.free, usage.total
