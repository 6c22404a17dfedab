"""Find the C++ compilers of the machine, and their capabilities.

A compiler is examined once. The result is stored in the cache folder under the compiler's path,
time and size, so that later starts need not run the compiler.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pto_core.config import Config, child_environment
from pto_core.errors import CompileError
from pto_core.toolchain.cache import read_record, write_record
from pto_core.trust import make_folder

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
