"""Write a skeleton that runs as it is."""

from __future__ import annotations

import argparse
import os
import re
import shutil
from pathlib import Path

from pto_core.errors import UsageError

_SKELETONS = Path(__file__).parent / "skeleton"
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("kind", choices=["case"], help="what to write")
    parser.add_argument("name", help="name of the new folder, in the current one")


def run(namespace: argparse.Namespace) -> int:
    """Write the folder; overwrites nothing."""
    name = namespace.name
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} cannot be the name of a {namespace.kind}: expected a letter, then letters, "
            "digits, - and _, such as `pto new case my_case`",
            name="name",
            value=name,
            expected="a letter, then letters, digits, - and _",
        )
    folder = Path(name)
    if folder.exists() or folder.is_symlink():
        raise UsageError(
            f"{folder.absolute()} already exists; nothing was written: choose another name, or "
            "remove it first",
            name="name",
            value=name,
        )
    skeleton = _SKELETONS / namespace.kind
    try:
        shutil.copytree(skeleton, folder, ignore=shutil.ignore_patterns("__pycache__"))
    except OSError as error:
        shutil.rmtree(folder, ignore_errors=True)
        raise UsageError(
            f"{folder.absolute()} cannot be written: {_reason(error)}; change to a folder in which "
            "you may write, and try again",
            name="name",
            value=name,
        ) from error
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        print(path)
    print(f"run it with: pto run {name}")
    return 0


def _reason(error: OSError) -> str:
    """Give the machine's words; a copy of many files lists one failure for each."""
    if isinstance(error, shutil.Error) and error.args and error.args[0]:
        return str(error.args[0][0][2])
    return os.strerror(error.errno) if error.errno else str(error)
