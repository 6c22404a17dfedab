"""Write a skeleton that runs as it is."""

from __future__ import annotations

import argparse
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
    shutil.copytree(skeleton, folder, ignore=shutil.ignore_patterns("__pycache__"))
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        print(path)
    print(f"run it with: pto run {name}")
    return 0
