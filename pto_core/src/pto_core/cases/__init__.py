"""Run cases (``golden.py``, ``kernel_config.py``) in a child process and compare outputs.

Importing this package imports none of its modules; each name is loaded when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pto_core.cases.report import CaseReport, CoreShare, OutputReport
    from pto_core.cases.supervisor import list_cases, run_all_cases, run_case

__all__ = [
    "CaseReport",
    "CoreShare",
    "OutputReport",
    "list_cases",
    "run_all_cases",
    "run_case",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = "supervisor" if name in ("list_cases", "run_all_cases", "run_case") else "report"
    return getattr(import_module(f"pto_core.cases.{module}"), name)
