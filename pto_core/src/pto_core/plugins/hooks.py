"""The hooks that observers may implement.

All of them are about whole runs and cases: no hook is called per task. Importing this module
imports pluggy.
"""

from __future__ import annotations

from typing import Any

import pluggy

from pto_core.interfaces.observer import CaseInfo, RunInfo

hookspec = pluggy.HookspecMarker("pto")
hookimpl = pluggy.HookimplMarker("pto")


class Hooks:
    """Specifications; docs/hooks.md has a section on each."""

    @hookspec
    def pto_run_started(self, info: RunInfo) -> None:
        """Tell that a run is about to start; called on the thread that called ``Device.run``."""

    @hookspec
    def pto_run_finished(self, info: RunInfo, report: Any, error: BaseException | None) -> None:
        """Tell that a run is over: ``report`` is its ``RunReport``, None after ``error``."""

    @hookspec
    def pto_case_started(self, info: CaseInfo) -> None:
        """Tell that ``pto run`` is about to run a case; called in the parent, not in its child."""

    @hookspec
    def pto_case_finished(self, info: CaseInfo, exit_code: int, seconds: float) -> None:
        """Tell that a case of ``pto run`` is over, well or not."""
