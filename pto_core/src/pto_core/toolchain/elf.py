"""Read the dynamic symbols of a shared library from its file, without loading it."""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

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
    """The tables of one file."""

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
