"""Find kernels that use bfloat16 although their results would be computed in half precision.

The kernel tile library takes bfloat16 from ``<stdfloat>``. If the compiler lacks this header, the
library computes in half precision (float16) without a message, and results are wrong.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from pto_core.toolchain.compilers import Compiler
from pto_core.toolchain.packages import gxx_advice
from pto_core.toolchain.request import BuildRequest

_BFLOAT16 = re.compile(r"\bbfloat16(?:_t)?\b")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)


def precision_warning(request: BuildRequest, compiler: Compiler, read: Iterable[Path]) -> str:
    """Return the warning for a kernel that computes bfloat16 in half precision, otherwise "".

    ``read`` lists the files that the compiler read. The user's files among them are searched for
    bfloat16.
    """
    root = request.tile_library
    if root is None or compiler.has_stdfloat:
        return ""
    files = set(read)
    of_library = {path for path in files if root in path.parents}
    folder = request.source.parent
    mine = [path for path in files - of_library if {folder, folder.parent} & set(path.parents)]
    if not (of_library and any(_names_bfloat16(path) for path in mine)):
        return ""
    return (
        f"{request.name} uses bfloat16, and {compiler.name} has no <stdfloat>: the kernel tile "
        "library computes bfloat16 in half precision (float16) instead, so results differ. "
        f"For bfloat16, {gxx_advice(13)}, or set CXX to a compiler that has <stdfloat>"
    )


def _names_bfloat16(path: Path) -> bool:
    try:
        text = path.read_text("utf-8", "replace")
    except OSError:
        return False
    return _BFLOAT16.search(_COMMENT.sub(" ", text)) is not None
