"""The identity of the code that two hosts must share."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

import pto_core
from pto_core import _hierarchy, _native


@cache
def build() -> str:
    """Return the core's version with a digest of the code, such as ``0.1.0+2f61c09a7be4``.

    Two builds of one version can have different code. Their hosts must not work together.
    """
    digest = hashlib.sha256(f"{_native.source_digest} {_hierarchy.source_digest}".encode())
    for package in (Path(pto_core.__file__).parent, Path(__file__).parents[1]):
        for path in sorted(package.rglob("*.py")):
            digest.update(path.read_bytes())
    return f"{pto_core.__version__.replace('+', '.')}+{digest.hexdigest()[:12]}"
