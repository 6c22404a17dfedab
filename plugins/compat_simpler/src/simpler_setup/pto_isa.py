"""The folder of the kernel tile library."""

from typing import Any

from pto_core.config import load_with_plugins


def ensure_pto_isa_root(*_args: Any, **_options: Any) -> str | None:
    """Return the setting ``pto_isa_root`` (``PTO_ISA_ROOT``); None if it is not set.

    The library is never downloaded, so the arguments have no effect. A kernel that includes the
    library does not compile without it, and the error says so.
    """
    root = load_with_plugins()["pto_isa_root"]
    return None if root is None else str(root)
