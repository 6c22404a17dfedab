"""Files of arrays and a description: access logs and traces.

The format is NumPy's ``.npz``. The member ``description`` is JSON: the kind of the content, the
content that is not in arrays, and the name, type, shape and checksum of each array. So an archive
is read only if it is exactly what :func:`write_archive` wrote. Its reader need not check the types
of its members again.
"""

from __future__ import annotations

import contextlib
import json
import os
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pto_core.errors import PtoError, UsageError
from pto_core.output_files import replacing

_DESCRIPTION = "description"


class Archive(NamedTuple):
    """The content of a file. ``kind`` contains the version of the format."""

    kind: str
    content: dict[str, Any]
    arrays: dict[str, NDArray[Any]]


def write_archive(path: Path, archive: Archive) -> None:
    """Write a file. Raises OSError."""
    content = {"kind": archive.kind, "content": archive.content}
    text = json.dumps({**content, "seal": _seal(content, archive.arrays)}).encode()
    with replacing(path) as file:
        members: dict[str, Any] = {**archive.arrays, _DESCRIPTION: np.frombuffer(text, "u1")}
        np.savez(file, **members)


def read_archive(path: Path, what: str, advice: str) -> Archive:
    """Read a file of :func:`write_archive`. Raises UsageError for any other file, and OSError.

    ``what`` and ``advice`` are parts of the error text: the expected kind of file, and the remedy.
    """
    with path.open("rb") as file, refusing_damage(path, what, advice):
        with zipfile.ZipFile(file) as listed:
            size = sum(member.file_size for member in listed.infolist())
        if size > path.stat().st_size:
            raise ValueError("its members are larger than the file")
        file.seek(0)
        with np.load(file, allow_pickle=False) as members:
            arrays = {name: members[name] for name in members.files}
        content = json.loads(arrays.pop(_DESCRIPTION).tobytes())
        seal = content.pop("seal")
        if seal != _seal(content, arrays):
            raise ValueError("its content has changed since it was written")
        return Archive(content["kind"], content["content"], arrays)


@contextlib.contextmanager
def refusing_damage(path: Path, what: str, advice: str) -> Iterator[None]:
    """Convert each exception of a reader to a UsageError, except errors that name a file."""
    try:
        yield
    except Exception as error:
        if isinstance(error, PtoError) or getattr(error, "filename", None) is not None:
            raise
        raise UsageError(
            f"{path} is not {what} of this version, or it is damaged ({type(error).__name__}: "
            f"{error}); {advice}",
            name=what.split()[-1],
            value=os.fspath(path),
        ) from error


def _seal(content: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> int:
    """Return a checksum of a description and of the arrays with their names and types."""
    layouts = [
        (name, array.dtype.descr, array.shape, zlib.crc32(array.tobytes()))
        for name, array in sorted(arrays.items())
    ]
    return zlib.crc32(json.dumps([content, layouts]).encode())
