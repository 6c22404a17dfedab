"""Read the dynamic symbols of a shared library from its file, without loading it."""

from __future__ import annotations

import mmap
import struct
from pathlib import Path

_DYNSYM = 11
_GLOBAL_BINDINGS = {1, 2, 10}  # global, weak, gnu unique


def exported_symbols(path: Path) -> frozenset[str] | None:
    """List the symbols that a 64-bit little-endian shared library defines and exports.

    Returns None for any other kind of file, such as a device binary, whose symbols cannot be read.
    """
    with path.open("rb") as file:
        if file.read(6) != b"\x7fELF\x02\x01":
            return None
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as image:
            try:
                return _dynamic_symbols(image)
            except (struct.error, IndexError):
                return None


def _dynamic_symbols(image: mmap.mmap) -> frozenset[str] | None:
    (section_table,) = struct.unpack_from("<Q", image, 0x28)
    entry_size, count = struct.unpack_from("<HH", image, 0x3A)
    sections = [
        # The fields: name, type, flags, address, offset, size, link.
        struct.unpack_from("<IIQQQQI", image, section_table + index * entry_size)
        for index in range(count)
    ]
    tables = [section for section in sections if section[1] == _DYNSYM]
    if not tables:
        return None
    names: set[str] = set()
    for table in tables:
        strings = sections[table[6]][4]
        for offset in range(table[4], table[4] + table[5], 24):
            name, info, other, section = struct.unpack_from("<IBBH", image, offset)
            if section and info >> 4 in _GLOBAL_BINDINGS and other & 3 in (0, 3):
                end = image.find(b"\0", strings + name)
                names.add(image[strings + name : end].decode(errors="replace"))
    return frozenset(names)
