"""The hooks that observers may implement.

The hooks are called for whole runs and cases, never per task. Importing this module imports pluggy.
"""

from __future__ import annotations

from typing import Any

import pluggy

from pto_core.interfaces.observer import CaseInfo, RunInfo

hookspec = pluggy.HookspecMarker("pto")
hookimpl = pluggy.HookimplMarker("pto")


class Hooks:
    """Hook specifications; docs/hooks.md describes each."""

    @hookspec
    def pto_run_started(self, info: RunInfo) -> None:
        """Called before a run starts, on the thread that called ``Device.run``."""

    @hookspec
    def pto_run_finished(self, info: RunInfo, report: Any, error: BaseException | None) -> None:
        """Called after a run. ``report``: its ``RunReport``, or None if ``error`` is set."""

    @hookspec
    def pto_case_started(self, info: CaseInfo) -> None:
        """Called in the parent process when a child of ``pto run`` begins a case."""

    @hookspec
    def pto_case_finished(self, info: CaseInfo, exit_code: int, seconds: float) -> None:
        """Called after a case of ``pto run``, successful or not."""
