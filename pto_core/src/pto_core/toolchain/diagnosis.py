"""Convert the output of a compiler to an error that contains advice."""

from __future__ import annotations

import mmap
import re
import shlex
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pto_core.errors import CompileError
from pto_core.errors.values import suggestion
from pto_core.toolchain.children import CompilerResult
from pto_core.toolchain.compilers import (
    BuildRequest,
    Compiler,
    gxx_advice,
    missing_header,
    missing_part,
)

_FIRST_ERROR = re.compile(
    r"^(?P<file>[^\s:][^:\n]*):(?P<line>\d+):(?:\d+:)? (?:fatal )?error: (?P<what>.*)$", re.M
)
_LINKER_ERROR = re.compile(
    r"^.*(?:undefined reference|multiple definition|cannot find -l).*$", re.M
)
_NO_SPACE = re.compile(
    r"No space left on device|File too large|File size limit exceeded|Disk quota exceeded", re.I
)
_FUNCTION = re.compile(r"\b([A-Za-z_]\w*)\s*\(")
# The note of gcc about flags that it does not know. gcc prints it only together with another error.
_FLAG_NOTE = re.compile(r"^cc1plus: (?:note|warning): unrecognized command-line option .*\n?", re.M)
_OUTPUT_LINES = 60
_INTERFACES = {
    "ChipTaskArgs|CoreTaskArgs|CoreTaskArgsWithDeps|ChipTensor|CoreTaskPredicate|GraphTaskArgs"
    "|rt_submit_graph": "August 2026",
    "L0TaskArgs|L2TaskArgs|L2TaskArgsWithDeps": "June 2026",
    r"rt_submit_(?:aic_|aiv_|dummy_)?task|rt_scope_begin|alloc_tensors|intrinsic\.h"
    r"|pto_async_kernel_api\.h": "April to August 2026",
    "TensorCreateInfo|ChipStorageTaskArgs|PTO2TaskId|TaskOutputTensors": "March 2026 or later",
    "MixedKernels": "11 March 2026 or later",
    r"PTO2Runtime|PTOParam|pto2_rt_\w+": "March 2026",
}
"""Names of published interfaces, the latest first; the headers of another one lack them."""
_UNKNOWN_NAME = re.compile("not declared|not been declared|does not name a type|No such file")


def ran_out_of_space(outcome: CompilerResult) -> bool:
    """Return whether the compiler failed because there was no space for a file."""
    return outcome.code != 0 and _NO_SPACE.search(outcome.output) is not None


def compile_error(
    request: BuildRequest, compiler: Compiler, outcome: CompilerResult
) -> CompileError:
    """Return the error for a failed compilation, with file, line and the compiler's message."""
    if lacks_entry(request, outcome.output) and not _other_interface(outcome.output):
        return _missing_entry_error(request, compiler, outcome.output)
    found = _FIRST_ERROR.search(outcome.output)
    line = int(found["line"]) if found else None
    place = f"{found['file']}:{line}: {found['what']}" if found else _other_reason(outcome)
    command = _command(request, compiler)
    advice = _advice(request, compiler, outcome.output)
    text = [f"{request.name} does not compile: {place}"]
    if advice:
        text.append(advice)
    text.append(f"{compiler.name} said:\n{_shortened(outcome.output)}")
    text.append(f"command: {command}")
    return CompileError(
        "\n".join(text),
        source=found["file"] if found else str(request.source),
        line=line,
        command=command,
        output=outcome.output,
        compiler=compiler.name,
    )


def lacks_entry(request: BuildRequest, output: str) -> bool:
    """Return whether the compiler did not find the orchestration's function."""
    return request.entry is not None and _is_undeclared(request.entry, output)


def missing_symbol_error(
    request: BuildRequest, symbols: frozenset[str], compiler: Compiler
) -> CompileError:
    """Return the error for a compiled library that does not export the required function."""
    wanted = request.required_symbol
    mangled = any(name.startswith(f"_Z{len(wanted or '')}{wanted}") for name in symbols)
    found = (
        'it has a C++ function of that name, so add extern "C": '
        if mangled
        else f"it exports {', '.join(sorted(symbols)[:8]) or 'nothing'}; "
    )
    return CompileError(
        f"{request.name} exports no {wanted}: {found}"
        f'a kernel is  extern "C" void {wanted}(int64_t* args)  in {request.source}',
        source=str(request.source),
        compiler=compiler.name,
    )


def newer_symbol_error(
    request: BuildRequest, symbol: str, version: str, ceiling: str, compiler: Compiler
) -> CompileError:
    """Return the error for a library that needs a newer symbol than the device has."""
    name = version.partition("_")[0]
    return CompileError(
        f"{request.name} needs {symbol} of version {version}, and the device has {name} up to "
        f"{ceiling}; build it with an older compiler than {compiler.name}, or do without the "
        "function",
        source=str(request.source),
        compiler=compiler.name,
    )


def no_compiler_error(request: BuildRequest, tried: Sequence[str]) -> CompileError:
    """Return the error for a source that no compiler on this machine accepts."""
    attempts = f"tried {', '.join(tried)}" if tried else "none was found"
    if request.compilers:
        return CompileError(
            f"no compiler for the {request.kind} {request.source.name} accepts {request.standard} "
            f"({attempts} of {', '.join(request.compilers)}); install the toolkit of the device, "
            "or add its folder to PATH",
            source=str(request.source),
        )
    return CompileError(
        f"no C++ compiler here accepts {request.standard}, required by {request.name} "
        f"({attempts}); {gxx_advice(11)}, or set CXX to such a compiler",
        source=str(request.source),
    )


def no_space_error(folder: Path, what: str, free_bytes: int | None) -> CompileError:
    """Return the error for a cache that cannot be written; ``free_bytes``: if the disk is full."""
    full = free_bytes is not None
    free = f" ({free_bytes / 2**20:.1f} MiB free)" if free_bytes is not None else ""
    return CompileError(
        f"cannot write to the cache folder {folder}: {what}{free}; "
        f"{'free some space there, or ' if full else ''}choose another folder with "
        "--set cache_dir=FOLDER or PTO_CACHE_DIR"
    )


def _other_reason(outcome: CompilerResult) -> str:
    linker = _LINKER_ERROR.search(outcome.output)
    if linker:
        return linker.group().strip()
    if outcome.code < 0:
        return f"the compiler was ended by signal {-outcome.code}"
    lines = [line for line in outcome.output.splitlines() if "error" in line.lower()]
    return lines[0].strip() if lines else f"the compiler ended with code {outcome.code}"


def _other_interface(output: str) -> str:
    """Return a sentence that names the published interface of the source, if it is another one.

    Only unknown names in the errors of the compiler count: the source may define others itself.
    """
    lines = [line.partition("; did you mean")[0] for line in output.splitlines()]
    errors = "\n".join(line for line in lines if "error:" in line and _UNKNOWN_NAME.search(line))
    for names, when in _INTERFACES.items():
        found = re.search(rf"\b(?:{names})\b", errors)
        if found:
            return (
                f"This source is written for the interface of {when} ({found.group()}). That of "
                "August 2026 belongs to the runtime tensormap_and_ringbuffer. If api names another "
                "interface, remove it; docs/published-programs.md lists the interfaces."
            )
    return ""


def _advice(request: BuildRequest, compiler: Compiler, output: str) -> str:
    other = _other_interface(output)
    if other:
        return other
    part = missing_part(output)
    if part:
        name, major = part
        return (
            f"{name} needs g++ {major} or newer; {compiler.name} does not have it. "
            f"{_sentence(gxx_advice(major))}; a g++-{major} on the path is found automatically. "
            "Or set CXX to a newer compiler."
        )
    header = missing_header(output)
    if header:
        return _tile_header_advice(request, header)
    root = request.tile_library
    found = _FIRST_ERROR.search(output)
    is_in_library = root is not None and found is not None and root in Path(found["file"]).parents
    if is_in_library and not compiler.has_stdfloat:
        return (
            f"The error is in the kernel tile library ({root}), and newer versions of it do not "
            f"compile with compilers as old as {compiler.name}. {_sentence(gxx_advice(13))}, or "
            "set CXX to a newer compiler."
        )
    return ""


def _tile_header_advice(request: BuildRequest, header: str) -> str:
    """Return advice for a missing header that may belong to the kernel tile library."""
    root = request.tile_library
    if root is not None and not (root / "include" / "pto").is_dir():
        what = "has no folder include/pto" if root.is_dir() else "is not a folder"
        return (
            f"PTO_ISA_ROOT is {root}, which {what}: set it to the folder of the kernel tile "
            "library that contains include/pto."
        )
    if not header.startswith(("pto/", "pto-")):
        return ""
    if root is not None:
        return (
            f"The kernel tile library in {root} (PTO_ISA_ROOT) has no {header}: use another "
            "version."
        )
    return (
        f"{header} belongs to the kernel tile library, which is not part of this project: "
        "set PTO_ISA_ROOT to its folder."
    )


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:]


def _missing_entry_error(request: BuildRequest, compiler: Compiler, output: str) -> CompileError:
    """Return the error for a source that does not define the named function."""
    return CompileError(
        f"{request.source} has no function {request.entry!r}, which is function_name in "
        f"ORCHESTRATION{_similar(request)}",
        source=str(request.source),
        command=_command(request, compiler),
        output=output,
        compiler=compiler.name,
    )


def default_entry_warning(request: BuildRequest) -> str:
    """Return the warning that the default entry runs instead of the named function."""
    assert request.fallback is not None, "a fallback was built, so the request has one"
    return (
        f"{request.source} has no function {request.entry!r}, which is function_name in "
        f"ORCHESTRATION{_similar(request)}; {request.fallback.entry} runs instead, as with the "
        "published runner"
    )


def _similar(request: BuildRequest) -> str:
    """Return a suggestion of a similar function that the source defines."""
    wanted = request.entry or ""
    functions = set(_FUNCTION.findall(request.source.read_text("utf-8", "replace")))
    return suggestion(wanted, sorted(functions - {wanted}))


def _command(request: BuildRequest, compiler: Compiler) -> str:
    """Return a command that the user can run; it does not need the temporary generated file."""
    return shlex.join((*request.command(compiler), "-o", "artefact.so", str(request.source)))


def _is_undeclared(name: str, output: str) -> bool:
    """Return whether gcc or clang reported that the function ``name`` is not declared."""
    patterns = (
        rf"'(?:::)?{name}' (?:was not declared|has not been declared)",
        rf"no member named '{name}' in the global namespace",
    )
    return any(re.search(pattern, output) for pattern in patterns)


def _shortened(output: str) -> str:
    lines = _FLAG_NOTE.sub("", output).rstrip().splitlines()
    if len(lines) <= _OUTPUT_LINES:
        return "\n".join(lines)
    return "\n".join([*lines[:_OUTPUT_LINES], f"... {len(lines) - _OUTPUT_LINES} more lines"])


_DYNSYM, _VERNEED, _VERSYM = 11, 0x6FFFFFFE, 0x6FFFFFFF  # types of sections
_TLS = 7  # a type of segment
_GLOBAL_BINDINGS = {1, 2, 10}  # global, weak, gnu unique
_VERSION_INDEX = 0x7FFF  # mask: the upper bit marks a hidden version


@dataclass(frozen=True)
class LibrarySymbols:
    """The dynamic symbols of a shared library."""

    exported: frozenset[str]
    """The symbols that the library defines for others."""
    needed: dict[str, str]
    """The symbols that it needs, each with its version, such as ``GLIBC_2.34``, or ``""``."""
    has_thread_storage: bool
    """Whether the library has thread-local variables."""


def read_symbols(path: Path) -> LibrarySymbols | None:
    """Read the symbols of a 64-bit little-endian shared library.

    Returns None for any other kind of file, such as a device binary, whose symbols cannot be read.
    """
    with path.open("rb") as file:
        if file.read(6) != b"\x7fELF\x02\x01":
            return None
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as image:
            try:
                return _Reader(image).read()
            except (struct.error, IndexError):
                return None


@dataclass(frozen=True)
class _Section:
    """The fields of a section header that are needed here."""

    type: int
    offset: int
    size: int
    link: int


class _Reader:
    """Reads the symbol tables of an ELF file that is mapped into memory."""

    def __init__(self, image: mmap.mmap) -> None:
        self._image = image
        (table,) = struct.unpack_from("<Q", image, 0x28)
        entry_size, count = struct.unpack_from("<HH", image, 0x3A)
        self._sections = [
            # The fields: name, type, flags, address, offset, size, link.
            _Section(fields[1], fields[4], fields[5], fields[6])
            for fields in (
                struct.unpack_from("<IIQQQQI", image, table + index * entry_size)
                for index in range(count)
            )
        ]

    def read(self) -> LibrarySymbols | None:
        tables = [section for section in self._sections if section.type == _DYNSYM]
        if not tables:
            return None
        exported: set[str] = set()
        needed: dict[str, str] = {}
        versions = dict(self._versions())
        for table in tables:
            for index, offset in enumerate(range(table.offset, table.offset + table.size, 24)):
                name, info, other, section = struct.unpack_from("<IBBH", self._image, offset)
                if info >> 4 not in _GLOBAL_BINDINGS:
                    continue
                text = self._text(table, name)
                if section and other & 3 in (0, 3):
                    exported.add(text)
                elif not section:
                    needed[text] = versions.get(self._version_index(index), "")
        return LibrarySymbols(frozenset(exported), needed, self._has_thread_storage())

    def _text(self, section: _Section, offset: int) -> str:
        start = self._sections[section.link].offset + offset
        return self._image[start : self._image.find(b"\0", start)].decode(errors="replace")

    def _version_index(self, symbol: int) -> int:
        for section in self._sections:
            if section.type == _VERSYM and 2 * symbol < section.size:
                (index,) = struct.unpack_from("<H", self._image, section.offset + 2 * symbol)
                return int(index) & _VERSION_INDEX
        return 0

    def _versions(self) -> Iterator[tuple[int, str]]:
        """Return the index and the name of each version that is needed of another library."""
        for section in self._sections:
            if section.type != _VERNEED:
                continue
            library, end = section.offset, section.offset + section.size
            while library < end:
                # The fields: version, count, file, first entry, next library.
                fields = struct.unpack_from("<HHIII", self._image, library)
                entry = library + fields[3]
                for _ in range(fields[1]):
                    # The fields: hash, flags, index, name, next entry.
                    one = struct.unpack_from("<IHHII", self._image, entry)
                    yield one[2] & _VERSION_INDEX, self._text(section, one[3])
                    entry += one[4]
                if not fields[4]:
                    break
                library += fields[4]

    def _has_thread_storage(self) -> bool:
        (table,) = struct.unpack_from("<Q", self._image, 0x20)
        entry_size, count = struct.unpack_from("<HH", self._image, 0x36)
        return any(
            struct.unpack_from("<I", self._image, table + index * entry_size)[0] == _TLS
            for index in range(count)
        )
