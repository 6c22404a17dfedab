"""The version of this package, and the identity of its code."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

VERSION = "0.1.0"


@cache
def build() -> str:
    """Return the version with a digest of the code, such as ``0.1.0+2f61c09a7be4``.

    Two builds of one version can have different code. Their hosts must not work together.
    """
    from pto_core import _hierarchy, _native

    digest = hashlib.sha256(f"{_native.source_digest} {_hierarchy.source_digest}".encode())
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        digest.update(path.read_bytes())
    return f"{VERSION.replace('+', '.')}+{digest.hexdigest()[:12]}"
