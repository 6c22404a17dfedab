"""Execute runs of a Worker: call a graph function, wait for its tasks, raise one error."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from pto_core import log
from pto_core._worker import (
    CapturedGraph,
    Orchestrator,
    RunScope,
    TaskArgs,
    TaskArgsView,
)
from pto_core.config.options import CHECK, HAZARDS
from pto_core.errors import AbortedError, UsageError, WorkerClosedError
from pto_core.errors.plain_functions import require_executed
from pto_core.errors.values import invalid_value, suggestion
from pto_core.kernels import CallConfig
from pto_core.plugins import insight, observation, registered
from pto_core.progress import Progress
from pto_core.worker.child_group import ChildGroup
from pto_core.worker.failures import Failure, RunErrors
from pto_core.worker.live_state import note_interrupt

if TYPE_CHECKING:
    from pto_insight.graphs import TaskGraph

GraphFunction: TypeAlias = Callable[[Orchestrator, TaskArgsView, CallConfig], object]
"""A function that submits the tasks of a run; :meth:`pto_core.Worker.run` calls it."""

_logger = log.get(__name__)
_NO_ARGUMENTS = TaskArgs().view()
_DEFAULT = CallConfig()
_COUNTS = ("submitted", "finished", "failed", "poisoned")
"""The counters of a run that observers receive."""


class Block(RunScope):
    """The scope that owns the run of a graph function or of a replay, or a capture."""

    def __init__(self, runs: Runs) -> None:
        super().__init__()
        self._runs = runs

    def __enter__(self) -> Block:
        return self

    def _leave(self, error: BaseException | None) -> None:
        self._runs.leave(self, error)


class Runs:
    """Begins and ends the runs of a Worker.

    Runs with the same hazards can be open at once. A capture, a replay and a run with other hazards
    wait until they have ended. Each run belongs to a :class:`RunScope`, which keeps its turn until
    the outcome of the run is known.
    """

    def __init__(self, children: ChildGroup) -> None:
        self._children = children
        self.driver = self._driver = children.driver
        self._placement = children.placement
        self._hooks = children.hooks
        self._errors = RunErrors(children.driver)
        self._observers, self._info = children.observers, children.info
        self._count = 0  # the number of runs so far
        self._hazards = CHECK if children.settings.config["hazards"] == CHECK else "raw"

    @property
    def is_running(self) -> bool:
        """Whether a run is open."""
        return bool(self._driver.is_running)

    @property
    def is_capturing(self) -> bool:
        """Whether this thread is capturing a graph."""
        return bool(self._driver.is_capturing)

    def run(
        self,
        graph: GraphFunction,
        args: TaskArgs | TaskArgsView | None,
        config: CallConfig | None,
        hazards: str | None,
    ) -> None:
        """Run a graph function; see ``Worker.run``."""
        if hazards is None:
            hazards = self._hazards
        hazards_number(hazards, (*HAZARDS, CHECK))
        if isinstance(hazards, str) and hazards == CHECK:
            if isinstance(args, TaskArgsView):
                raise UsageError(
                    'hazards is "check", but args is a view; pass a TaskArgs, or check the graph '
                    "of the Worker that creates it",
                    name="args",
                    value=args,
                )
            self.graph(graph, args, config, "raw").check().raise_for_races()
            hazards = "raw"
        view = args.view() if isinstance(args, TaskArgs) else args or _NO_ARGUMENTS
        with Block(self) as block:
            self._call(self.begin(block, hazards, config), graph, view, config)

    def _call(
        self,
        orch: Orchestrator,
        graph: GraphFunction,
        args: TaskArgsView,
        config: CallConfig | None,
    ) -> None:
        if not callable(graph):
            raise invalid_value("graph", graph, "pass a function")
        returned = graph(orch, args, config or _DEFAULT)
        if returned is not None:
            require_executed("graph function", graph, returned)

    def capture(
        self,
        graph: GraphFunction,
        args: TaskArgs | None,
        config: CallConfig | None,
        hazards: str | None,
    ) -> CapturedGraph:
        """Record the submits of a graph function; see ``Worker.capture``."""
        hazards = "raw" if hazards is None else hazards
        with Block(self) as block:
            orch = block.begin_capture(self._driver, hazards_number(hazards), config, args)
            self._call(orch, graph, _NO_ARGUMENTS if args is None else args.view(), config)
            return block.end_capture()

    def graph(
        self,
        graph: GraphFunction,
        args: TaskArgs | None,
        config: CallConfig | None,
        hazards: str | None,
    ) -> TaskGraph:
        """Return the graph of a graph function; see ``Worker.graph``."""
        return self._graph_of(self.capture(graph, args, config, hazards))

    def _graph_of(self, captured: CapturedGraph) -> TaskGraph:
        return insight.TaskGraph(insight.AccessLog.from_fields(self._driver.captured_log(captured)))

    def observe(
        self,
        graph: GraphFunction,
        args: TaskArgs | None,
        config: CallConfig | None,
        hazards: str | None,
    ) -> None:
        """Call a graph function to add its graph to those that a command shows."""
        seen = observation.of_graphs()
        if seen is None:
            return
        try:
            chosen = None if hazards == CHECK else hazards
            seen.graphs.append((self._info.path, self.graph(graph, args, config, chosen)))
        except UsageError as error:
            _logger.warning("no graph of a run", reason=str(error))

    def replay(self, graph: CapturedGraph, args: TaskArgs | None) -> None:
        """Run a captured graph; see ``Worker.replay``."""
        seen = None if observation.current is None else observation.of_graphs()
        if seen is not None and isinstance(graph, CapturedGraph):
            seen.graphs.append((self._info.path, self._graph_of(graph)))
        with Block(self) as block:
            self.submit_replay(block, graph, args)

    def submit_replay(self, scope: RunScope, graph: CapturedGraph, args: TaskArgs | None) -> None:
        """Begin a run that belongs to ``scope``, and make all submits of a captured graph."""
        if not isinstance(graph, CapturedGraph):
            raise invalid_value("graph", graph, "pass the result of Worker.capture")
        scope.begin_replay(self._driver, graph, args)
        self._prepare(scope)
        self._driver.replay()

    def begin(self, scope: RunScope, hazards: str, config: CallConfig | None) -> Orchestrator:
        """Begin a run that belongs to ``scope``; return the object that submits its tasks.

        Raises UsageError if this thread has a run open with which the new one must not overlap.
        """
        orchestrator = scope.begin(self._driver, hazards_number(hazards), config)
        self._prepare(scope)
        return orchestrator

    def _prepare(self, scope: RunScope) -> None:
        self._count += 1
        scope.number = self._count
        if "pto_worker_run_started" in registered.hooks:
            self._observers.notify("pto_worker_run_started", worker=self._info, run=scope.number)
        is_alone = self._driver.turns == 1
        if self._placement is not None and is_alone:
            self._placement.begin()
        self._hooks.begin_run(is_alone=is_alone)

    def leave(self, scope: RunScope, error: BaseException | None) -> None:
        """End the run of a scope whose graph function returned, or raised ``error``."""
        try:
            if error is None:
                self.end(scope)
            else:
                note_interrupt(error, self._driver, self._children.memory.descriptor)
                bad_policy = self.abandon(scope, error)
                if bad_policy is not None and isinstance(error, AbortedError):
                    raise bad_policy from error  # it is why the run was ended
        except BaseException as failure:
            error = failure
            raise
        finally:
            if error is not None:
                self._children.tracing.run_failed(error)
            if "pto_worker_run_finished" in registered.hooks:
                self._observe_end(scope, error)

    def _observe_end(self, scope: RunScope, error: BaseException | None) -> None:
        statistics = self._driver.statistics(scope)
        self._observers.notify(
            "pto_worker_run_finished",
            worker=self._info,
            run=scope.number,
            counts={name: statistics[name] for name in _COUNTS},
            error=error,
        )

    def end(self, scope: RunScope) -> None:
        """Wait for the tasks of a run; raise the first unhandled failure, with the others attached.

        A failure is handled if a handle has returned or raised it.
        Raises UsageError if the graph function left a scope open; the run is over in this case too.
        Raises WorkerClosedError if ``close()`` ended tasks of the run.
        """
        try:
            bad_policy = self._wait(scope, is_interrupted=False)
        except UsageError as error:
            if self._driver.is_open(scope):
                self.abandon(scope, error)
            raise
        if bad_policy is not None:
            raise bad_policy
        failed, poisoned = self._driver.outcome(scope)
        if not failed and not poisoned:
            return
        if self._children.is_closing:
            raise WorkerClosedError("this Worker was closed during the run")
        cancelled = self._hooks.cancelled
        own = {task for task, _ in (*failed, *poisoned)}
        handled = own.intersection(self._hooks.handled)
        self._hooks.handled -= handled
        handled.update(task for task, cause in failed if cause in cancelled)
        failed = [(task, cause) for task, cause in failed if task not in handled]
        poisoned = [one for one in poisoned if handled.isdisjoint(one)]
        if failed or poisoned:
            raise self._errors.run(failed, poisoned, scope)

    def abandon(self, scope: RunScope, reason: BaseException) -> UsageError | None:
        """End a run whose graph function raised ``reason``; return the error of the policy.

        Tasks that have not begun do not run. This method waits for the others. After an
        interrupt, children that still run tasks are killed after a short time. If the Worker was
        closed meanwhile, the run has ended already.
        """
        if not self._driver.is_open(scope):  # another thread has ended the run
            return self._policy_error()
        text = f"the graph function of the run raised {type(reason).__name__}"
        with contextlib.suppress(WorkerClosedError):
            failure = Failure.of(AbortedError(text))
            self._driver.cancel(self._driver.add_cause(failure.pack()), scope)
            return self._wait(scope, is_interrupted=not isinstance(reason, Exception))
        return None

    def _wait(self, scope: RunScope, *, is_interrupted: bool) -> UsageError | None:
        """Wait for the end of the run; return the error of the placement policy."""
        try:
            self._driver.run_end(scope, is_interrupted)
        finally:
            if (values := self._children.memory.values) is not None:
                values.settle()
            error = self._policy_error()
        return error

    def _policy_error(self) -> UsageError | None:
        """Return the error of the placement policy, which has ended all open runs, or None."""
        if self._placement is None:
            return None
        return self._placement.end(is_last=self._driver.turns == 1)

    def progress(self, scope: RunScope, *, is_over: bool = False) -> Progress:
        """Return the progress of the run of a scope."""
        counts = self._driver.statistics(scope)
        return Progress(counts["submitted"], counts["finished"], counts["failed"], is_over=is_over)


def hazards_number(hazards: str, known: Sequence[str] = HAZARDS) -> int:
    """Return the engine's number for a hazard mode. Raises UsageError."""
    if not isinstance(hazards, str) or hazards not in known:
        hint = suggestion(hazards, known) if isinstance(hazards, str) else ""
        raise invalid_value("hazards", hazards, f"pass one of {', '.join(map(repr, known))}{hint}")
    return known.index(hazards)
