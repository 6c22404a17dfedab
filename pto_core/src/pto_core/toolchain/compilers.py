"""The C++ compilers of the machine: their capabilities, packages, and command lines.

A compiler is examined once. The result is stored in the cache folder under the compiler's path,
time and size, so that later starts need not run the compiler.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pto_core.config import Config, child_environment
from pto_core.errors import CompileError
from pto_core.toolchain.cache import read_record, write_record
from pto_core.trust import make_folder

# For each code name of a Debian or Ubuntu release: the version of the package `g++`, and of the
# newest g++.
_APT_RELEASES = {
    "bullseye": (10, 10),
    "bookworm": (12, 12),
    "trixie": (14, 14),
    "focal": (9, 10),
    "jammy": (11, 12),
    "noble": (13, 14),
}
_GXX = {
    "debian": "apt-get install g++",
    "fedora": "dnf install gcc-c++",
    "rhel": "dnf install gcc-c++",
    "suse": "zypper install gcc-c++",
    "alpine": "apk add g++",
    "arch": "pacman -S gcc",
}
_PYTHON_HEADERS = {
    "debian": "apt-get install python{version}-dev",
    "fedora": "dnf install python3-devel",
    "rhel": "dnf install python3-devel",
    "suse": "zypper install python3-devel",
    "alpine": "apk add python3-dev",
}


def this_release() -> Mapping[str, str]:
    """Return the fields of ``/etc/os-release``; empty if the file does not exist."""
    try:
        return platform.freedesktop_os_release()
    except OSError:
        return {}


def gxx_advice(least: int, release: Mapping[str, str] | None = None) -> str:
    """Return advice for installing g++ ``least`` or newer; name a package if one is known."""
    release = this_release() if release is None else release
    codenames = (release.get("UBUNTU_CODENAME"), release.get("VERSION_CODENAME"))
    known = next((_APT_RELEASES[name] for name in codenames if name in _APT_RELEASES), None)
    if known is None:
        command = _by_family(_GXX, release)
        hint = f", such as with `{command}` if it is new enough" if command else ""
        return f"install g++ {least} or newer{hint}"
    default, newest = known
    if newest < least:
        name = release.get("PRETTY_NAME", "this release")
        return (
            f"the newest package of {name} is g++-{newest}: use a newer release of the "
            f"distribution, or a container, with g++ {least} or newer"
        )
    package = "g++" if default >= least else f"g++-{newest}"
    return f"install g++ {least} or newer: `apt-get install {package}`"


def python_headers_advice(
    version: str, release: Mapping[str, str] | None = None, prefix: str = sys.base_prefix
) -> str:
    """Return advice for installing the headers of Python ``version`` below ``prefix``."""
    release = this_release() if release is None else release
    command = _by_family(_PYTHON_HEADERS, release) if prefix == "/usr" else None
    if command is None:
        return f"install the development files of the Python below {prefix}"
    return command.format(version=version)


def _by_family(commands: Mapping[str, str], release: Mapping[str, str]) -> str | None:
    families = (release.get("ID", ""), *release.get("ID_LIKE", "").split())
    return next((commands[family] for family in families if family in commands), None)


# For each header, the first version of g++ that has it.
_HEADERS = {
    "barrier": 11, "bit": 9, "charconv": 8, "compare": 10, "concepts": 10, "coroutine": 10,
    "expected": 12, "flat_map": 15, "flat_set": 15, "format": 13, "generator": 14,
    "latch": 11, "mdspan": 16, "numbers": 10, "print": 14, "ranges": 10, "semaphore": 11,
    "source_location": 11, "span": 10, "spanstream": 12, "stacktrace": 14, "stdfloat": 13,
    "stop_token": 10, "syncstream": 11, "text_encoding": 14, "version": 9,
}  # fmt: skip

# For each name, the first version of g++ whose headers define it; the headers are older.
_NAMES = {
    "bfloat16_t": 13, "float16_t": 13, "float32_t": 13, "float64_t": 13, "float128_t": 13,
    "byteswap": 12, "chunk": 13, "enumerate": 13, "expected": 12, "format": 13, "forward_like": 14,
    "generator": 14, "mdspan": 16, "move_only_function": 12, "print": 14, "println": 14,
    "slide": 13, "stride": 13, "to": 14, "to_underlying": 11, "unexpected": 12, "unreachable": 12,
    "zip": 13, "zip_transform": 13,
}  # fmt: skip

_MISSING_HEADER = re.compile(
    r"fatal error: (?:(?P<gcc>[\w/.+-]+): No such file or directory"
    r"|'(?P<clang>[^']+)' file not found)"
)
_MISSING_NAME = re.compile(
    r"error: (?:'(?P<gcc>\w+)' is not a member of 'std(?:::ranges|::views|::ranges::views)?'"
    r"|no (?:\w+ )+?(?:named )?'(?P<clang>\w+)' in namespace 'std)"
)


def missing_part(output: str) -> tuple[str, int] | None:
    """Return the missing header or name of the C++ library, and the first g++ that has it."""
    header = _MISSING_HEADER.search(output)
    if header:
        name = header["gcc"] or header["clang"]
        return (f"<{name}>", _HEADERS[name]) if name in _HEADERS else None
    found = _MISSING_NAME.search(output)
    if found:
        name = found["gcc"] or found["clang"]
        return (f"std::{name}", _NAMES[name]) if name in _NAMES else None
    return None


def missing_header(output: str) -> str | None:
    """Return the header that the compiler did not find, or None."""
    found = _MISSING_HEADER.search(output)
    return (found["gcc"] or found["clang"]) if found else None


HOST_COMPILERS = (*(f"g++-{major}" for major in range(19, 10, -1)), "g++", "clang++")

# For each standard, the values of -std= that compilers accept, the final name first.
_SPELLINGS = {
    "c++17": ("c++17", "c++1z"),
    "c++20": ("c++20", "c++2a"),
    "c++23": ("c++23", "c++2b"),
    "c++26": ("c++26", "c++2c"),
}
_STDFLOAT = "#include <stdfloat>\nstd::bfloat16_t value = 1.0bf16;\n"
_PROBE_LIMIT_S = 60


@dataclass(frozen=True)
class Compiler:
    """A compiler of this machine.

    ``command`` is its command line. ``identity`` is different for each version of the compiler.
    ``standards`` maps a standard (``"c++23"``) to the value of ``-std=`` for this compiler.
    """

    command: tuple[str, ...]
    family: str
    """The compiler's family: ``gcc``, ``clang`` or ``unknown``."""
    major: int
    version: str
    identity: str
    standards: Mapping[str, str]
    has_stdfloat: bool
    """Whether its C++ library has ``<stdfloat>``, which defines bfloat16."""

    @property
    def name(self) -> str:
        """The name of the compiler in messages, such as ``g++ (gcc 12.2.0)``."""
        return f"{shlex.join(self.command)} ({self.family} {self.version})"

    def spelling(self, standard: str) -> str | None:
        """Return the value of ``-std=`` for ``standard``; None if it is not supported."""
        if standard in _SPELLINGS:
            return self.standards.get(standard)
        return standard  # an unknown standard: the compiler itself accepts or refuses it


def candidates(config: Config, names: Sequence[str] = ()) -> Iterator[Compiler]:
    """Return the usable compilers, best first.

    Without ``names``, the candidates are the compiler of the setting ``cxx``, then the defaults.
    With ``names``, only these are candidates. Raises CompileError if the compiler of ``cxx`` does
    not exist.
    """
    wanted = None if names else config["cxx"]
    if wanted:
        compiler = find_compiler(wanted, config["cache_dir"])
        if compiler is None:
            raise CompileError(
                f"the C++ compiler {wanted!r} (from {config.origin('cxx')}) cannot be run; "
                "set CXX or cxx to an installed compiler, or unset it for automatic selection",
                compiler=wanted,
            )
        yield compiler
    for name in names or HOST_COMPILERS:
        found = find_compiler(name, config["cache_dir"])
        if found is not None and name != wanted:
            yield found


def find_compiler(command: str, cache_dir: Path) -> Compiler | None:
    """Examine the compiler of a command line; return None if it cannot be run."""
    try:
        arguments = shlex.split(command)
    except ValueError:  # a quotation without an end
        return None
    program = shutil.which(arguments[0]) if arguments else None
    if program is None:
        return None
    record = cache_dir / "compilers" / f"{_fingerprint(arguments, program)}.json"
    known = read_record(record)
    if known is not None:
        return Compiler(**{**known, "command": tuple(known["command"])})
    compiler = _probe((program, *arguments[1:]))
    if compiler is not None:
        _remember(record, asdict(compiler))
    return compiler


def _fingerprint(arguments: Sequence[str], program: str) -> str:
    """Return a hash that changes if a file of the command line is replaced."""
    parts: list[str] = [program]
    for word in arguments:
        path = shutil.which(word)
        parts.append(word)
        if path is not None:
            real = os.path.realpath(path)
            state = os.stat(real)
            parts += [real, str(state.st_mtime_ns), str(state.st_size)]
    return hashlib.sha256("\0".join(parts).encode(errors="surrogateescape")).hexdigest()[:32]


def _probe(command: tuple[str, ...]) -> Compiler | None:
    macros = _ask(command, "-dM", "-E")
    if macros is None:
        return None
    defined = dict(re.findall(r"^#define (\S+) (.*)$", macros, re.MULTILINE))
    family: str
    names: tuple[str, ...]
    if "__clang__" in defined:
        family, names = "clang", ("__clang_major__", "__clang_minor__", "__clang_patchlevel__")
    elif "__GNUC__" in defined:
        family, names = "gcc", ("__GNUC__", "__GNUC_MINOR__", "__GNUC_PATCHLEVEL__")
    else:
        family, names = "unknown", ()
    numbers = [defined.get(name, "0") for name in names]
    standards = dict(_accepted(command))
    newest = next(reversed(standards.values()), "c++17")
    # The predefined macros contain the version, the target and the default dialect. The text of a
    # wrapper script is hashed too, because the script may add flags.
    parts = (*command, macros, *_scripts(command))
    return Compiler(
        command=command,
        family=family,
        major=int(numbers[0]) if numbers else 0,
        version=".".join(numbers),
        identity=hashlib.sha256("\0".join(parts).encode(errors="surrogateescape")).hexdigest(),
        standards=standards,
        has_stdfloat=_ask(command, f"-std={newest}", "-fsyntax-only", source=_STDFLOAT) is not None,
    )


def _scripts(command: tuple[str, ...]) -> Iterator[str]:
    """Return the text of each file of the command line that is a script."""
    for word in command:
        with contextlib.suppress(OSError), open(shutil.which(word) or word, "rb") as file:
            if file.read(2) == b"#!":
                yield os.fsdecode(file.read())


def _accepted(command: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    for standard, spellings in _SPELLINGS.items():
        for spelling in spellings:
            if _ask(command, f"-std={spelling}", "-fsyntax-only") is not None:
                yield standard, spelling
                break


def _ask(command: tuple[str, ...], *flags: str, source: str = "") -> str | None:
    try:
        answer = subprocess.run(
            (*command, *flags, "-x", "c++", "-"),
            input=source,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PROBE_LIMIT_S,
            env=child_environment({"LC_ALL": "C"}),
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout if answer.returncode == 0 else None


def _remember(record: Path, known: dict[str, Any]) -> None:
    """Store the result. Without a writable cache, the next start examines the compiler again."""
    with contextlib.suppress(OSError):
        make_folder(record.parent)
        partial = record.with_name(f"{record.stem}.{os.getpid()}.part")
        try:
            write_record(partial, known)
            partial.replace(record)
        finally:
            partial.unlink(missing_ok=True)


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
