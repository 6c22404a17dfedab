"""The modules that a program sends to another host, for one session.

The parent's host reads the Python sources of the modules. The other host writes them to a private
folder, which the Worker's process puts first on ``sys.path`` before it imports anything. The folder
is removed when the session has ended.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Annotated

import msgspec

from pto_core.errors import ProtocolError, UsageError
from pto_transport_zmq.remote.callables import FileName, check_names

FILES_MAX = 2**12
SOURCES_BYTES_MAX = 2**24
_SUFFIX = ".py"
_PREFIX = "pto-modules-"

ModuleSources = Annotated[
    dict[FileName, Annotated[bytes, msgspec.Meta(max_length=SOURCES_BYTES_MAX)]],
    msgspec.Meta(max_length=FILES_MAX),
]
"""The sources of modules by file name, such as ``my_pkg/__init__.py``."""


# ---- at the sender ----


def module_sources(names: Iterable[str]) -> dict[str, bytes]:
    """Return the sources of top-level modules and packages, with all modules in the packages.

    Raises UsageError for a name that cannot be sent, and for more bytes or files than the limits.
    """
    files = {inner: file for name in names for inner, file in _files(name)}
    nbytes = sum(file.stat().st_size for file in files.values())
    if len(files) > FILES_MAX or nbytes > SOURCES_BYTES_MAX:
        raise UsageError(
            f"the modules in ship= have {len(files)} files with {nbytes} bytes; the limits are "
            f"{FILES_MAX} files and {SOURCES_BYTES_MAX} bytes; install the larger ones on the "
            "other host",
            name="ship",
        )
    return {inner: file.read_bytes() for inner, file in files.items()}


def _files(name: str) -> Iterator[tuple[str, Path]]:
    """Yield the names and paths of a module's files."""
    is_a_module = name.isidentifier() and name != "__main__"
    spec = importlib.util.find_spec(name) if is_a_module else None
    if spec is None:
        raise UsageError(
            f"ship= has {name!r}, which is not a top-level module or package that can be imported "
            "here; functions of the main program are sent without ship=",
            name="ship",
            value=name,
        )
    if spec.submodule_search_locations is not None:
        for location in spec.submodule_search_locations:
            yield from _package_files(name, Path(location))
    elif spec.origin is not None and spec.origin.endswith(_SUFFIX):
        yield name + _SUFFIX, Path(spec.origin)
    else:
        raise _not_python(name, spec.origin)


def _package_files(name: str, root: Path) -> Iterator[tuple[str, Path]]:
    for folder, _, found in os.walk(root):
        for file in sorted(found):
            path = Path(folder, file)
            if file.endswith(tuple(EXTENSION_SUFFIXES)):
                raise _not_python(name, str(path))
            if file.endswith(_SUFFIX):
                yield str(Path(name) / path.relative_to(root)), path


def _not_python(name: str, file: str | None) -> UsageError:
    return UsageError(
        f"the module {name} cannot be sent to another host, because {file or 'it'} is not Python "
        "source; install the module there",
        name="ship",
        value=name,
    )


# ---- at the receiver ----


def top_levels(sources: Iterable[str]) -> list[str]:
    """Return the sorted names of the top-level modules that these files belong to."""
    return sorted({name.partition("/")[0].removesuffix(_SUFFIX) for name in sources})


def modules_folder() -> str:
    """Return the path of a folder for the modules of one session; it does not exist yet.

    Its name is random: agents in other namespaces may use the same folder for temporary files, and
    the same process ids.
    """
    return os.path.join(tempfile.gettempdir(), _PREFIX + os.urandom(16).hex())


def write_modules(folder: str, sources: Mapping[str, bytes]) -> None:
    """Write modules to a new private folder.

    Raises ProtocolError for names that cannot be written there, and for more bytes than the limit,
    and OSError.
    """
    check_names(sources)
    nbytes = sum(map(len, sources.values()))
    if nbytes > SOURCES_BYTES_MAX:
        raise ProtocolError(
            f"the modules from another host have {nbytes} bytes; the limit is {SOURCES_BYTES_MAX}"
        )
    os.mkdir(folder, 0o700)
    for name, content in sources.items():
        file = Path(folder, name)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)


def remove_modules(folder: str) -> None:
    """Remove the folder of a session, if it exists."""
    shutil.rmtree(folder, ignore_errors=True)


def use_modules(folder: str, names: Sequence[str]) -> None:
    """Make the modules in a folder importable, before all other modules of these names."""
    loaded = [name for name in names if name in sys.modules]
    if loaded:
        raise UsageError(
            f"the module {loaded[0]} in ship= is in use by the agent itself, so it cannot be "
            "replaced; remove it from ship=, and install the same version on both hosts",
            name="ship",
            value=loaded[0],
        )
    sys.path.insert(0, folder)
    importlib.invalidate_caches()
