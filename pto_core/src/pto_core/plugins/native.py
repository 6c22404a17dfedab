"""Check the ABI version of a plugin's native library."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

from pto_core.errors import PluginLoadError, PluginVersionError
from pto_core.interfaces import ABI_VERSION
from pto_core.plugins.advice import reinstall
from pto_core.plugins.checks import load_error, version_error
from pto_core.plugins.records import PluginRecord


def check_library(record: PluginRecord, path: Path) -> None:
    """Raise unless the library at ``path`` exists, loads, and was built for this ABI version."""
    error = library_error(record, path)
    if error is not None:
        raise error


def library_error(record: PluginRecord, path: Path) -> PluginLoadError | PluginVersionError | None:
    """Return the error that loading a plugin's native library causes, or None."""
    if not path.is_file():
        fix = reinstall(record.distribution)
        return load_error(record, f"has no native library at {path}; {fix}")
    symbol = f"pto_{record.family}_entry"
    try:
        library = ctypes.CDLL(str(path), mode=os.RTLD_NOW | os.RTLD_LOCAL)
        entry = getattr(library, symbol)
    except (OSError, AttributeError) as error:
        return load_error(record, f"has a native library that cannot be used: {error}")
    # The first member of every table is its version, in all versions of the ABI.
    entry.restype = ctypes.POINTER(ctypes.c_uint32)
    table = entry() if record.family == "backend" else entry(record.name.encode())
    if not table:
        return load_error(record, f"has a native library whose {symbol}() returns no table")
    if table[0] != ABI_VERSION:
        return version_error(record, "native ABI", ABI_VERSION, table[0])
    return None
