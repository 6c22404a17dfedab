"""The hooks that observers may implement.

The hooks are called for whole runs, cases and children, never per task. Importing this module
imports pluggy.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pluggy

from pto_core.interfaces.observer import CaseInfo, RunInfo, WorkerInfo

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

    @hookspec
    def pto_worker_started(self, worker: WorkerInfo, children: tuple[str, ...]) -> None:
        """Called when all children of a Worker are ready, on the thread that starts it."""

    @hookspec
    def pto_worker_closed(self, worker: WorkerInfo) -> None:
        """Called when a Worker has been closed and no child is left."""

    @hookspec
    def pto_worker_run_started(self, worker: WorkerInfo, run: int) -> None:
        """Called when a run of a Worker has begun, before its first submit."""

    @hookspec
    def pto_worker_run_finished(
        self,
        worker: WorkerInfo,
        run: int,
        counts: Mapping[str, int],
        error: BaseException | None,
    ) -> None:
        """Called after a run of a Worker. ``error``: the exception that the caller receives."""

    @hookspec
    def pto_child_started(self, worker: WorkerInfo, child: str) -> None:
        """Called when a child of a Worker is ready for the first time."""

    @hookspec
    def pto_child_lost(
        self, worker: WorkerInfo, child: str, error: BaseException, restarts: bool
    ) -> None:
        """Called when a child has been lost. ``restarts``: whether a new process will start."""

    @hookspec
    def pto_child_restarted(self, worker: WorkerInfo, child: str) -> None:
        """Called when the new process of a lost child is ready."""

    @hookspec
    def pto_host_placed(self, worker: WorkerInfo, child: str, host: str) -> None:
        """Called when a launcher has placed the host of a child. ``host``: address of its agent."""

    @hookspec
    def pto_host_lost(self, worker: WorkerInfo, child: str, host: str) -> None:
        """Called when a placed host has been released, because its child was lost."""
