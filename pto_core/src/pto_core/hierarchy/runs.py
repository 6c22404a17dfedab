"""The runs of one Worker: a graph is called, its tasks are waited for, failures are one error."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

from pto_core._hierarchy import (
    CapturedGraph,
    Orchestrator,
    RunScope,
    TaskArgs,
    TaskArgsView,
    TaskHandle,
)
from pto_core.config.options import HAZARDS
from pto_core.errors import AbortedError, PtoError, UsageError, WorkerClosedError
from pto_core.hierarchy.crew import Crew
from pto_core.hierarchy.failures import (
    Failure,
    TaskPlace,
    place_of,
    poisoned_error,
    poisoned_task,
    run_error,
    task_error,
)
from pto_core.hierarchy.progress import Progress
from pto_core.kernels import CallConfig

GraphFunction: TypeAlias = Callable[[Orchestrator, TaskArgsView, CallConfig], object]
"""What :meth:`pto_core.Worker.run` calls to submit tasks."""

_NONE = -1
_NO_ARGUMENTS = TaskArgs().view()
_DEFAULT = CallConfig()
# A task that was past its deadline when its child ended for another reason.
_UNEXPLAINED = Failure.of(AbortedError("the task was over its time limit, and its child is gone"))


class Block(RunScope):
    """The run of a graph function, or of a replay."""

    def __init__(self, runs: Runs) -> None:
        super().__init__()
        self._runs = runs

    def __enter__(self) -> Block:
        return self

    def _leave(self, error: BaseException | None) -> None:
        self._runs.leave(error)


class Runs:
    """Begins and ends runs, one after the other; handles of their tasks ask it, also later."""

    def __init__(self, crew: Crew) -> None:
        self._paths = crew.paths
        self._driver = crew.driver
        self._placement = crew.placement
        self._supervision = crew.supervision
        self._orchestrator = Orchestrator(crew.driver)

    @property
    def is_running(self) -> bool:
        """Whether a run is open."""
        return bool(self._driver.is_running)

    @property
    def is_capturing(self) -> bool:
        """Whether a graph is being captured."""
        return bool(self._driver.is_capturing)

    @property
    def orchestrator(self) -> Orchestrator:
        """What graph functions submit to; of use only inside a run."""
        return self._orchestrator

    def run(
        self,
        graph: GraphFunction,
        args: TaskArgs | TaskArgsView | None,
        config: CallConfig | None,
        hazards: str,
    ) -> None:
        """Run a graph function; see ``Worker.run``."""
        view = args.view() if isinstance(args, TaskArgs) else args or _NO_ARGUMENTS
        with Block(self) as block:
            self.begin(block, hazards, config)
            graph(self._orchestrator, view, config or _DEFAULT)

    def capture(
        self,
        graph: GraphFunction,
        args: TaskArgs | None,
        config: CallConfig | None,
        hazards: str,
    ) -> CapturedGraph:
        """Record the submits of a graph function; see ``Worker.capture``."""
        self._driver.capture_begin(hazards_number(hazards), config, args)
        try:
            graph(
                self._orchestrator,
                _NO_ARGUMENTS if args is None else args.view(),
                config or _DEFAULT,
            )
            return self._driver.capture_end()
        except BaseException:
            self._driver.capture_abandon()
            raise

    def replay(self, graph: CapturedGraph, args: TaskArgs | None) -> None:
        """Run a captured graph; see ``Worker.replay``."""
        with Block(self) as block:
            self.submit_replay(block, graph, args)

    def submit_replay(self, scope: RunScope, graph: CapturedGraph, args: TaskArgs | None) -> None:
        """Begin a run, which ``scope`` owns, and make all submits of a captured graph."""
        if not isinstance(graph, CapturedGraph):
            raise UsageError(
                f"graph is {graph!r}; give what Worker.capture gave", name="graph", value=graph
            )
        if self.is_running:
            raise UsageError("a replay inside a run; a run is open already")
        scope.begin_replay(self._driver, graph, args)
        self._supervise()
        self._driver.replay()

    def begin(self, scope: RunScope, hazards: str, config: CallConfig | None) -> None:
        """Begin a run, which ``scope`` owns; raises UsageError inside another one."""
        scope.begin(self._driver, hazards_number(hazards), config)
        self._supervise()

    def _supervise(self) -> None:
        self._supervision.begin()
        if self._placement is not None:
            self._placement.begin()
        self._supervision.look_after_pause()

    def leave(self, error: BaseException | None) -> None:
        """End a run whose graph has returned, or has raised ``error``."""
        if error is None:
            self.end()
        elif self.is_running:  # else another thread has ended it
            self.abandon(error)

    def end(self) -> None:
        """Wait for all tasks; raises one error for all failures, the first one.

        UsageError where the graph has left a scope open; the run is over then, too.
        """
        try:
            bad_policy = self._wait(is_interrupted=False)
        except UsageError as error:
            if self.is_running:
                self.abandon(error)
            raise
        if bad_policy is not None:
            raise bad_policy
        _, failed, poisoned = self._driver.outcome()
        if failed or poisoned:
            raise self.error(failed, poisoned)

    def abandon(self, reason: BaseException) -> None:
        """End a run whose graph raised: what has not been sent does not run.

        What runs is waited for; not so long when the program was interrupted, then its child is
        ended. A Worker that was closed meanwhile has ended the run.
        """
        text = f"the graph of the run raised {type(reason).__name__}"
        with contextlib.suppress(WorkerClosedError):
            failure = Failure.of(AbortedError(text))
            self._driver.cancel(self._driver.add_cause(failure.pack()))
            self._wait(is_interrupted=not isinstance(reason, Exception))

    def _wait(self, *, is_interrupted: bool) -> UsageError | None:
        """Wait for the end of the run; gives what was wrong with the policy."""
        try:
            self._driver.run_end(is_interrupted)
        finally:
            error = None if self._placement is None else self._placement.end()
        return error

    def interrupt(self, error: BaseException) -> None:
        """Let another thread, which waits for the end of this run, raise ``error`` instead."""
        self._supervision.interrupt(error)

    def error(
        self, failed: Sequence[tuple[int, int]], poisoned: Sequence[tuple[int, int]]
    ) -> PtoError:
        """Make the error of a run from (task, cause) and (task, root)."""
        listed = [poisoned_task(self.place(task), _given(root)) for task, root in poisoned]
        if not failed:
            return AbortedError("the run was ended before all of its tasks could run")
        return run_error([self.error_of(task, cause) for task, cause in failed], listed)

    def error_of(self, task: int, cause: int, of: TaskHandle | None = None) -> PtoError:
        """Make the error of one task that failed, in the last run or in that of a handle."""
        known = self._driver.cause(cause, of)
        assert known is not None
        failure = Failure.unpack(known["data"]) if known["data"] else _UNEXPLAINED
        return task_error(self.place(task, known["child"], of), failure)

    def poisoned(self, task: int, root: int, of: TaskHandle | None = None) -> PtoError:
        """Make the error of one task that did not run."""
        described = None if root == _NONE else self._driver.task(root, of)
        because = None if described is None else self.error_of(root, described["cause"], of)
        origin = None if root == _NONE else self.place(root, of=of)
        return poisoned_error(self.place(task, of=of), origin, because)

    def place(self, task: int, child: int = _NONE, of: TaskHandle | None = None) -> TaskPlace:
        """Say which task that was, live or of that run and not completed."""
        known = self._driver.task(task, of)
        place = place_of(task, known)
        if known is None:
            return place
        child = known["child"] if child == _NONE else child
        path = None if child == _NONE else self._paths[child]
        return replace(place, child=_given(child), path=path)

    def progress(self, *, is_over: bool = False) -> Progress:
        """Say how far the run is."""
        counts = self._driver.statistics()
        return Progress(counts["submitted"], counts["finished"], counts["failed"], is_over=is_over)


def hazards_number(hazards: str) -> int:
    """Give what the engine knows ``hazards`` by; raises UsageError."""
    if hazards not in HAZARDS:
        raise UsageError(
            f"hazards is {hazards!r}; give 'raw' or 'full'", name="hazards", value=hazards
        )
    return HAZARDS.index(hazards)


def _given(number: int) -> int | None:
    return None if number == _NONE else number
