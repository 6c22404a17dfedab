"""List the files that a compiler read; the compiler lists them in a make rule."""

from __future__ import annotations

import os
import re
from pathlib import Path

_WORD = re.compile(r"(?:\\[ \t#:\\]|\\(?!\n)|\$\$|[^\s\\])+")
_ESCAPE = re.compile(r"\\([ \t#:\\])|\$\$")


def read_depfile(path: Path, folder: Path) -> list[Path]:
    """List the prerequisites of the make rule in ``path``; resolve relative paths at ``folder``."""
    _, _, rule = os.fsdecode(path.read_bytes()).partition(": ")
    words = _WORD.findall(rule.replace("\\\n", " "))
    names = (_ESCAPE.sub(lambda found: found[1] or "$", word) for word in words)
    return [folder / name for name in names]
