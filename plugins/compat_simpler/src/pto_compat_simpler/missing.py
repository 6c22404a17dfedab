"""Names of the published modules that are not available here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pto_core.errors import UnsupportedError


def missing(module: str, advice: str) -> Callable[[str], Any]:
    """Return a ``__getattr__`` for a module: each name raises UnsupportedError with the advice."""

    def refuse(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise UnsupportedError(f"{module}.{name} is not available here; {advice}", name=name)

    return refuse
