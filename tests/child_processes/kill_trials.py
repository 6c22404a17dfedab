"""One run of one program by a Worker whose children are killed, and the check of its result."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import kill_graphs
import kill_tasks
import numpy as np
from kill_graphs import ALWAYS_FAILS, Program, Task
from kill_talk import Talk

from pto_core import Worker
from pto_core.errors import ChildDiedError, PtoError, TaskFailedError


class Wrong(Exception):
    """A run had an effect that is not allowed."""


@dataclass(frozen=True)
class Limits:
    """The effects of deaths on a Worker: how much a death may lose, and whether it is final."""

    lost_by_death: int
    groups_lost_by_death: int
    deaths_are_final: bool
    has_hosts: bool


class Outcome(NamedTuple):
    """The effects of a run: ``before`` is the memory at its begin; ``kills`` counts its kills."""

    errors: dict[int, Any]
    poisoned: set[int]
    before: Any
    kills: int


@dataclass
class Trial:
    """One run of one program, and the check of its result."""

    program: Program
    worker: Worker
    handles: tuple[Any, Any]
    memory: Any
    limits: Limits

    def run(self, talk: Talk) -> Outcome:
        """Run the program and return its outcome without a check."""
        self.reset_counts()
        self.memory[:] = np.arange(kill_graphs.ARRAYS)[:, None]
        before = self.memory.copy()
        slots: list[int] = []

        def graph(orch: Any, args: Any, config: Any) -> None:
            slots.extend(kill_graphs.submit_all(orch, self.handles, self.program, self.memory))

        error: PtoError | None = None
        with talk.kills("run") as counts:
            try:
                self.worker.run(graph, hazards="full")
            except (TaskFailedError, ChildDiedError) as caught:
                error = caught
        number_of = {slot: number for number, slot in enumerate(slots)}
        errors = {} if error is None else {number_of[one.task]: one for one in all_of(error)}
        poisoned = set() if error is None else {number_of[one.task] for one in error.poisoned}
        return Outcome(errors, poisoned, before, counts["all"])

    def require(self, outcome: Outcome) -> None:
        """Raise Wrong for the first fault of a run."""
        for fault in self.faults(outcome):
            raise Wrong(fault)

    def faults(self, outcome: Outcome) -> Iterator[str]:
        """Yield each forbidden effect of the last run. Call this before another run begins."""
        errors, poisoned, before, kills = outcome
        failed, expected = set(errors), before.copy()
        must_be, unknown = kill_graphs.in_order(self.program, failed, expected)
        if poisoned != must_be:
            yield f"poisoned {poisoned}, not {must_be}; failed {failed}"
        for array in set(range(kill_graphs.ARRAYS)) - unknown:
            found, wanted = self.memory[array], expected[array]
            if not (found == wanted).all():
                yield f"array {array}: {found[::32]} not {wanted[::32]}"
        counts = self.counts()
        idle = set() if self.may_begin_poisoned(kills) else poisoned
        for number, task in enumerate(self.program.tasks):
            yield from self._faults_of_counts(counts, number, task, failed | poisoned, idle)
        lost = {number for number in failed if self.is_loss(errors[number])}
        for number in sorted(failed - lost):
            if self.program.tasks[number].behaviour == kill_graphs.RUNS_WELL:
                yield f"task {number} failed by itself: {errors[number]}"
        yield from self._faults_of_failures(errors, lost, kills)

    def reset_counts(self) -> None:
        kill_tasks.begun[:] = kill_tasks.ended[:] = 0

    def may_begin_poisoned(self, kills: int) -> bool:
        """Return whether a poisoned task may have begun."""
        return False

    def is_loss(self, error: Any) -> bool:
        """Return whether a task failed because of a kill."""
        return isinstance(error, ChildDiedError) or "SIGKILL" in str(error)

    def counts(self) -> tuple[Any, Any]:
        """Return the starts and ends, by task and member."""
        return kill_tasks.begun, kill_tasks.ended

    def _faults_of_counts(
        self,
        counts: tuple[Any, Any],
        number: int,
        task: Task,
        failed: set[int],
        idle: set[int],
    ) -> Iterator[str]:
        starts, ends = (one[number, : len(task.members)] for one in counts)
        message = f"task {number} (retries {task.retries}): began {starts}, ended {ends}"
        tries = 1 + task.retries
        if self.limits.has_hosts and not task.is_sub:
            tries *= 1 + kill_tasks.INNER_RETRIES
        if not (starts <= tries).all():
            yield message
        if number in idle and starts.any():
            yield message + ", poisoned"
        if number not in idle | failed and not (ends >= 1).all():
            yield message + ", succeeded"

    def _faults_of_failures(
        self, errors: dict[int, Any], lost: set[int], kills: int
    ) -> Iterator[str]:
        tasks, raised = self.program.tasks, set(errors) - lost
        allowed = {number for number, task in enumerate(tasks) if task.behaviour}
        always = {n for n in allowed if tasks[n].behaviour == ALWAYS_FAILS}
        if not kills:
            no_retry = {n for n in allowed - always if not tasks[n].retries}
            hosted = {n for n in no_retry if self.limits.has_hosts and not tasks[n].is_sub}
            due = always | (no_retry - hosted)
            poisoned, _ = kill_graphs.in_order(self.program, raised, self.memory.copy())
            if due - poisoned != raised:
                yield f"tasks {raised} failed, not {due}"
            if lost:
                yield f"tasks {lost} were lost without a kill"
        if lost and not self._is_short():
            singles_most = self.limits.lost_by_death * kills
            groups_most = self.limits.groups_lost_by_death * kills
            groups = {number for number in lost if len(tasks[number].members) > 1}
            found = "; ".join(f"{tasks[number]} {errors[number]}" for number in lost)
            if len(lost - groups) > singles_most:
                yield f"{kills} kills lost too much: {found}"
            # A group is not repeated if a member of it may have begun in another child.
            if len(groups) > groups_most:
                yield f"{kills} kills lost too many groups: {found}"

    def _is_short(self) -> bool:
        """Return whether there are fewer children than at the start."""
        counts = self.worker.statistics()
        return self.limits.deaths_are_final or bool(counts["deaths"] > counts["restarts"])


def all_of(error: Any) -> list[Any]:
    return [error, *error.failures]
