"""Build one artefact: look it up in the cache; if it is missing, compile it and add it.

Published sources mark device functions ``[aicore]``, ``[[aicore]]`` or ``__attribute__((aicore))``,
at any place among the specifiers of a declaration. The last form only causes a warning on the host.
The first form is not C++, and compilers refuse the second form after ``static`` or ``inline``. A
macro cannot distinguish the forms, so both bracket forms are removed from the preprocessed text.
The line markers in that text ensure that diagnostics have the line numbers of the user's files.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from pto_core.errors import CompileError
from pto_core.toolchain.cache import ArtefactCache, searched_folders
from pto_core.toolchain.children import CompilerResult, ProcessGroup
from pto_core.toolchain.compilers import BuildRequest, Compiler, gxx_advice, missing_part
from pto_core.toolchain.diagnosis import (
    compile_error,
    lacks_entry,
    missing_symbol_error,
    newer_symbol_error,
    no_space_error,
    ran_out_of_space,
    read_symbols,
)

Result = TypeVar("Result")


class Cancelled(Exception):
    """The build was abandoned because its caller stopped waiting."""


class Builder:
    """Builds artefacts; ``group`` runs the compilers. Any thread may call the methods."""

    def __init__(
        self,
        cache_dir: Path,
        group: ProcessGroup,
        environment: Mapping[str, str],
        cancelled: threading.Event,
    ) -> None:
        self._cache_dir = cache_dir
        self._cache = ArtefactCache(cache_dir)
        self._group = group
        self._environment = environment
        self._cancelled = cancelled

    def build(self, request: BuildRequest, compilers: Sequence[Compiler]) -> Path:
        """Return the artefact; compile it, unless another process builds it meanwhile.

        Only the first compiler is used, unless it lacks a part of the C++ library that the source
        needs. Then the next compiler is tried. If the source does not define the entry, the
        fallback of the request is built. Raises CompileError.
        """
        try:
            return self._first_result(lambda one: self._build_with(request, one), compilers)
        except CompileError as error:
            if request.fallback is None or not lacks_entry(request, error.output):
                raise
            return self._build_fallback(request.fallback, compilers, error)

    def files_read(self, request: BuildRequest, compilers: Sequence[Compiler]) -> list[Path]:
        """Return the files that a build reads, without headers in folders of the system.

        Paths are not normalised, because ``..`` after a symbolic link has another meaning. Raises
        CompileError.
        """
        return self._first_result(lambda one: self._files_read_by(request, one), compilers)

    def _first_result(
        self, action: Callable[[Compiler], Result], compilers: Sequence[Compiler]
    ) -> Result:
        """Return the result of the first compiler that has the required part of the C++ library."""
        first_error: CompileError | None = None
        for compiler in compilers:
            try:
                return action(compiler)
            except CompileError as error:
                first_error = first_error or error
                if missing_part(error.message) is None:
                    break
            except OSError as error:
                raise self._cache_error(error) from error
        assert first_error is not None, "the caller must pass a compiler"
        raise first_error

    def _build_fallback(
        self, fallback: BuildRequest, compilers: Sequence[Compiler], first_error: CompileError
    ) -> Path:
        try:
            return self.build(fallback, compilers)
        except CompileError as error:
            if lacks_entry(fallback, error.output):
                raise first_error from None
            raise

    def _build_with(self, request: BuildRequest, compiler: Compiler) -> Path:
        key = request.key(compiler)
        with self._cache.building(key, self._pause):
            known = self._cache.lookup(key)
            if known is not None:
                return known
            with self._cache.scratch() as scratch:
                started_ns = time.time_ns()
                built = scratch / "artefact.so"
                compiled = scratch / "compiled" if request.steps else built
                self._compile(request, compiler, scratch, compiled)
                self._run_steps(request, compiler, scratch, compiled, built)
                self._check_symbols(request, compiler, built)
                read = [
                    path
                    for path in read_depfile(scratch / "read.d", request.source.parent)
                    if scratch not in path.parents
                ]
                searched = self._searched(request, compiler, scratch)
                inputs = [*read, request.source, *request.named_files(compiler)]
                return self._cache.store(key, built, inputs, started_ns, searched)

    def _searched(
        self, request: BuildRequest, compiler: Compiler, scratch: Path
    ) -> list[Path] | None:
        """Return the folders in which the compiler searches headers; None if it does not say."""
        command = request.command(compiler)
        language = () if "-x" in command else ("-x", "c++")
        ask = (*command, "-E", "-v", "-o", os.devnull, *language, os.devnull)
        return searched_folders(self._run(ask, request, scratch).output, request.source.parent)

    def _files_read_by(self, request: BuildRequest, compiler: Compiler) -> list[Path]:
        with self._cache.scratch() as scratch:
            listed = scratch / "read.d"
            note_read = ("-MM", "-MT", "artefact", "-MF", str(listed))
            unit = _unit_of(request, scratch)
            command = (*request.command(compiler), *note_read, str(unit))
            outcome = self._run(command, request, scratch)
            if outcome.code != 0:
                raise self._failure(request, compiler, outcome)
            read = read_depfile(listed, request.source.parent)
            return [path for path in read if scratch not in path.parents]

    def _compile(
        self, request: BuildRequest, compiler: Compiler, scratch: Path, built: Path
    ) -> None:
        unit = _unit_of(request, scratch)
        command = request.command(compiler)
        note_read = ("-MD", "-MT", "artefact", "-MF", str(scratch / "read.d"))
        direct = (*command, *note_read, "-o", str(built), str(unit))
        outcome: CompilerResult | None = None
        if request.keeps_attributes or not _uses_attribute(request):
            outcome = self._run(direct, request, scratch)
            if outcome.code == 0:
                return
            if request.keeps_attributes or "aicore" not in outcome.output:
                raise self._failure(request, compiler, outcome)
        expanded = scratch / "expanded.ii"
        preprocess = (*command, *note_read, "-E", "-o", str(expanded), str(unit))
        outcome = self._run(preprocess, request, scratch)
        if outcome.code != 0:
            raise self._failure(request, compiler, outcome)
        text = expanded.read_text("utf-8", "surrogateescape")
        expanded.write_text(without_attributes(text), "utf-8", "surrogateescape")
        compile_ = (*command, "-x", "c++-cpp-output", "-o", str(built), str(expanded))
        outcome = self._run(compile_, request, scratch)
        if outcome.code != 0:
            raise self._failure(request, compiler, outcome)

    def _run_steps(
        self, request: BuildRequest, compiler: Compiler, scratch: Path, compiled: Path, built: Path
    ) -> None:
        """Run the commands after the compiler; the last command writes ``built``."""
        for number, step in enumerate(request.steps, 1):
            output = built if number == len(request.steps) else scratch / f"step{number}"
            names = {"{input}": str(compiled), "{output}": str(output), "{folder}": str(scratch)}
            command = tuple(_replaced(word, names) for word in step)
            outcome = self._run(command, request, scratch)
            if outcome.code != 0:
                raise self._failure(request, compiler, outcome)
            compiled = output

    def _run(self, command: Sequence[str], request: BuildRequest, scratch: Path) -> CompilerResult:
        self._pause(0)
        # Place the compiler's temporary files in a folder from which a sweep removes them if the
        # compiler is killed.
        environment = {
            **self._environment,
            **dict(request.environment),
            "LC_ALL": "C",
            "TMPDIR": str(scratch),
        }
        outcome = self._group.run(command, request.source.parent, environment)
        self._pause(0)
        return outcome

    def _failure(
        self,
        request: BuildRequest,
        compiler: Compiler,
        outcome: CompilerResult,
    ) -> CompileError:
        if ran_out_of_space(outcome):
            return no_space_error(self._cache_dir, "the disk is full", self._free_bytes())
        return compile_error(request, compiler, outcome)

    def _check_symbols(self, request: BuildRequest, compiler: Compiler, built: Path) -> None:
        """Require the entry, and no symbol of a version that the device does not have."""
        if request.required_symbol is None and not request.ceilings:
            return
        symbols = read_symbols(built)
        if symbols is None:
            return
        if request.required_symbol and request.required_symbol not in symbols.exported:
            raise missing_symbol_error(request, symbols.exported, compiler)
        for symbol, version in sorted(symbols.needed.items()):
            name, _, number = version.partition("_")
            ceiling = dict(request.ceilings).get(name)
            if ceiling is not None and _numbers(number) > _numbers(ceiling):
                raise newer_symbol_error(request, symbol, version, ceiling, compiler)

    def _pause(self, seconds: float) -> None:
        if self._cancelled.wait(seconds) if seconds else self._cancelled.is_set():
            raise Cancelled

    def _cache_error(self, error: OSError) -> CompileError:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        what = os.strerror(error.errno) if error.errno else str(error)
        return no_space_error(self._cache_dir, what, self._free_bytes() if full else None)

    def _free_bytes(self) -> int | None:
        try:
            return shutil.disk_usage(self._cache_dir).free
        except OSError:
            return None


def _uses_attribute(request: BuildRequest) -> bool:
    return uses_attribute(request.source.read_text("utf-8", "replace"))


def _replaced(word: str, names: Mapping[str, str]) -> str:
    for name, value in names.items():
        word = word.replace(name, value)
    return word


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in version.split(".") if number.isdigit())


def _unit_of(request: BuildRequest, scratch: Path) -> Path:
    """Return the file to compile; if its text is generated, write it to ``scratch`` first."""
    if request.unit is None:
        return request.source
    unit = scratch / "unit.cpp"
    unit.write_bytes(os.fsencode(request.unit))
    return unit


_WORD = re.compile(r"(?:\\[ \t#:\\]|\\(?!\n)|\$\$|[^\s\\])+")
_ESCAPE = re.compile(r"\\([ \t#:\\])|\$\$")


def read_depfile(path: Path, folder: Path) -> list[Path]:
    """List the prerequisites of the make rule in ``path``; resolve relative paths at ``folder``."""
    _, _, rule = os.fsdecode(path.read_bytes()).partition(": ")
    words = _WORD.findall(rule.replace("\\\n", " "))
    names = (_ESCAPE.sub(lambda found: found[1] or "$", word) for word in words)
    return [folder / name for name in names]


# After an attribute, the rest of a declaration follows: a name, `~` or another attribute. This
# distinguishes an attribute from an index (`table[aicore];`) and from the capture of a lambda
# (`[aicore] {`, `[aicore](int)`).
_REST = r"(?=\s*(?:[A-Za-z_~:]|\[))"
_DOUBLE = re.compile(r"\[\s*\[\s*aicore\s*\]\s*\]")
_SINGLE = re.compile(r"(?<!\[)\[\s*aicore\s*\](?!\s*\])" + _REST)
_DEFINITION = re.compile(r"^[ \t]*#[ \t]*define\b(?:[^\n\\]|\\\n|\\.)*", re.MULTILINE)


def uses_attribute(source: str) -> bool:
    """Return whether the text has ``[aicore]`` outside of macro definitions."""
    return _SINGLE.search(_DEFINITION.sub("", source)) is not None


def without_attributes(preprocessed: str) -> str:
    """Replace both bracket forms by spaces, so that lines and columns stay the same."""
    text = _DOUBLE.sub(_blank, preprocessed)
    return _SINGLE.sub(_blank, text)


def _blank(found: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", found.group())


_BFLOAT16 = re.compile(r"\bbfloat16(?:_t)?\b")
# Find kernels that use bfloat16 although their results would be computed in half precision.
#
# The kernel tile library takes bfloat16 from `<stdfloat>`. If the compiler lacks this header, the
# library computes in half precision (float16) without a message, and results are wrong.
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)


def precision_warning(request: BuildRequest, compiler: Compiler, read: Iterable[Path]) -> str:
    """Return the warning for a kernel that computes bfloat16 in half precision, otherwise "".

    ``read`` lists the files that the compiler read. The user's files among them are searched for
    bfloat16.
    """
    root = request.tile_library
    if root is None or compiler.has_stdfloat:
        return ""
    files = set(read)
    of_library = {path for path in files if root in path.parents}
    folder = request.source.parent
    mine = [path for path in files - of_library if {folder, folder.parent} & set(path.parents)]
    if not (of_library and any(_names_bfloat16(path) for path in mine)):
        return ""
    return (
        f"{request.name} uses bfloat16, and {compiler.name} has no <stdfloat>: the kernel tile "
        "library computes bfloat16 in half precision (float16) instead, so results differ. "
        f"For bfloat16, {gxx_advice(13)}, or set CXX to a compiler that has <stdfloat>"
    )


def _names_bfloat16(path: Path) -> bool:
    try:
        text = path.read_text("utf-8", "replace")
    except OSError:
        return False
    return _BFLOAT16.search(_COMMENT.sub(" ", text)) is not None
