"""Write files completely or not at all, as UTF-8 under every locale."""

from __future__ import annotations

import contextlib
import os
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

# Characters that XML forbids, and that editors and terminals do not show.
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]")


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Open a file that takes the place of ``path`` if the block ends without an error.

    After an error, ``path`` is unchanged. Raises OSError, with ``path`` as its file name.
    """
    target = os.path.realpath(path)
    is_special = os.path.exists(target) and not os.path.isfile(target)  # a pipe or a device
    written = target if is_special else f"{target}.{threading.get_native_id()}.part"
    try:
        with open(written, "wb") as file:
            yield file
        if not is_special:
            os.replace(written, target)
    except BaseException as error:
        if not is_special:
            with contextlib.suppress(OSError):
                os.unlink(written)
        if isinstance(error, OSError):
            error.filename = os.fspath(path)
        raise


def write_text(path: Path, text: str) -> None:
    """Write a text; see :func:`replacing` and :func:`printable`."""
    with replacing(path) as file:
        file.write(printable(text).encode())


def printable(text: str) -> str:
    r"""Replace each control character by an escape such as ``\x01``; keep line breaks and tabs."""
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def numbered_runs(folder: Path) -> list[Path]:
    """Return the folders ``1``, ``2``, ... of the runs in a folder, the first run first."""
    runs = [one for one in folder.iterdir() if one.name.isdecimal() and one.is_dir()]
    return sorted(runs, key=lambda one: int(one.name))


def next_run_folder(out: Path) -> Path:
    """Make and return the folder of the next run, ``out/1``, ``out/2``, ... Raises OSError."""
    out.mkdir(parents=True, exist_ok=True)
    number = int(runs[-1].name) if (runs := numbered_runs(out)) else 0
    while True:
        number += 1
        with contextlib.suppress(FileExistsError):  # another command has made it just now
            (path := out / str(number)).mkdir()
            return path
