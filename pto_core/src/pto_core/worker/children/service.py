"""The bodies of SUB children and nested Workers: the task loop, and requests between tasks."""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from pto_core import log
from pto_core._worker import ChildLoop
from pto_core.errors import ProtocolError
from pto_core.kernels import CallConfig
from pto_core.user_ranges import forget_inherited_recorders
from pto_core.worker.children.tracing import TraceOperations
from pto_core.worker.failures import Failure
from pto_core.worker.handles import materialised
from pto_core.worker.values import bytes_at, open_part

if TYPE_CHECKING:
    from pto_core.config import Config
    from pto_core.interfaces import Policy, Scheduler
    from pto_core.kernels import CallConfig
    from pto_core.worker.children.tracing import Traced
    from pto_core.worker.endpoints import ChildConnection
    from pto_core.worker.handles import Delivery
    from pto_core.worker.processes import ChildStart
    from pto_core.worker.registry import Registry
    from pto_core.worker.settings import WorkerSettings


@dataclass(frozen=True)
class ChildContext:
    """The number of a child in its Worker, its shared memory, its connection and its callables.

    ``progress_table``: the address of the progress table. ``inherited``: the callables that a
    forked child inherits, by digest. ``deliveries``: the ways in which a spawned child obtains the
    callables.
    """

    index: int
    progress_table: int
    endpoint: ChildConnection
    inherited: Mapping[bytes, Any] = field(default_factory=dict)
    deliveries: Mapping[bytes, Sequence[Delivery]] = field(default_factory=dict)

    def callables(self) -> dict[bytes, Any]:
        """Return all callables by digest. If one cannot be loaded, raise its error."""
        made = {digest: materialised(ways) for digest, ways in self.deliveries.items()}
        return {**self.inherited, **made}


Operation = Callable[..., Any]
Invoke = Callable[[Any, Any, CallConfig | None], object]
_POSITIONAL = (
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
    inspect.Parameter.VAR_POSITIONAL,
)


def serve(
    start: ChildStart,
    context: ChildContext,
    invoke: Invoke | None = None,
    operations: Mapping[str, Operation] | None = None,
    traced: Traced | None = None,
) -> None:
    """Report that the child is ready, then run tasks until the parent asks it to close.

    ``invoke(callable, args, config)`` runs a task. If ``invoke`` is None, the loop calls
    ``callable(args)``, or ``callable()`` if that accepts no argument. ``operations``: additional
    requests that this kind of child handles. ``traced``: records the work inside the child, for
    traces.
    """
    forget_inherited_recorders()
    end = context.endpoint.open_child()
    loop = ChildLoop(
        table=end.table,
        end=end.end,
        progress_tables=context.progress_table,
        child=context.index,
        largest_frame_bytes=end.largest_frame_bytes,
    )
    for digest, callable_ in context.callables().items():
        loop.add(digest, callable_, accepts_argument(callable_))
    tracing = TraceOperations(start.path, loop.largest_answer, traced)
    service = _Service(loop, {**tracing.operations, **(operations or {})})
    start.ready()
    loop.run(control=service, invoke=None if invoke is None else service.invoking(invoke))


def accepts_argument(function: Callable[..., Any]) -> bool:
    """Return whether ``function`` can be called with one positional argument.

    True for a function without a signature, such as some built-in functions.
    """
    try:
        parameters = inspect.signature(function).parameters.values()
    except (ValueError, TypeError):
        return True
    return any(parameter.kind in _POSITIONAL for parameter in parameters)


class _Service:
    """Answers requests: pickled pairs of an operation and its arguments.

    The answer is pickled too: (True, value), or (False, a packed :class:`Failure`).
    """

    def __init__(self, loop: ChildLoop, operations: Mapping[str, Operation]) -> None:
        self._loop = loop
        self._delivered = b""  # the digest of the last callable that was delivered
        # number 0 selects the configuration of the run
        self._configs: dict[int, CallConfig | BaseException | None] = {0: None}
        self._operations: dict[str, Operation] = {
            "config": self._configure,
            "config_refused": self._refuse_config,
            "callable": self._deliver,
            "forget": loop.forget,
            "close": loop.stop,
            **operations,
        }

    def __call__(self, request: bytes) -> bytes:
        try:
            operation, arguments = pickle.loads(request)
            if operation == "stored":
                operation, arguments = pickle.loads(bytes_at(*arguments))
            if operation not in self._operations:
                raise ProtocolError(f"this child does not support the request {operation!r}")
            return pickle.dumps((True, self._operations[operation](*arguments)))
        except BaseException as error:  # noqa: BLE001 - the parent receives it
            return pickle.dumps((False, Failure.of(error).pack()))

    def invoking(self, invoke: Invoke) -> Callable[[Any, Any, int], None]:
        """Return the function that runs a task; its last argument is a configuration number."""

        def run(callable_: Any, args: Any, config: int) -> None:
            chosen = self._configs[config]
            if isinstance(chosen, BaseException):
                raise chosen.with_traceback(None)  # each raise adds frames
            invoke(callable_, args, chosen)

        return run

    def _configure(self, number: int, packed: bytes) -> None:
        self._configs[number] = CallConfig.unpack(packed)

    def _refuse_config(self, number: int, failure: bytes) -> None:
        """Let each task with a configuration fail that this host refuses to its client."""
        self._configs[number] = Failure.unpack(failure).exception

    def _deliver(
        self, digest: bytes, deliveries: Sequence[Delivery], is_repeated: bool = False
    ) -> bool:
        """Add a callable; ``is_repeated``: only if the last delivery has failed."""
        if is_repeated and digest == self._delivered:
            return True
        self._delivered = b""
        callable_ = materialised(deliveries)
        self._loop.add(digest, callable_, accepts_argument(callable_))
        self._delivered = digest
        return True


@dataclass(frozen=True)
class SubBody:
    """The body of a SUB child. ``config`` contains the settings of the log.

    ``part``: the child's memory for results, as ``ValueMemory.part`` returns it.
    """

    context: ChildContext
    config: Config
    part: tuple[int, int, list[tuple[int, int]]]
    is_forked: bool

    def __call__(self, start: ChildStart) -> None:
        """Run tasks until the parent asks the child to close."""
        log.configure(self.config)
        open_part(*self.part, is_forked=self.is_forked)
        serve(start, self.context)


class NestedWorker(Protocol):
    """A Worker that is a child: the part that its parent and its own process use."""

    settings: WorkerSettings
    registry: Registry
    policy: Policy | Scheduler | None
    """The placement policy that the program passed as a function."""

    @property
    def level(self) -> int:
        """The level of the Worker."""

    @property
    def nested(self) -> Sequence[NestedWorker]:
        """The Workers that were added to this Worker."""

    @property
    def spawns(self) -> bool:
        """Whether the Worker, or a Worker at any depth below it, spawns its children."""

    def start_as_child(self, path: str) -> None:
        """Start the Worker's children, in its process; ``path`` is its name in messages."""

    def run_graph(self, graph: Any, args: Any, config: CallConfig | None) -> None:
        """Run a graph function and wait for its tasks."""

    @property
    def tracing(self) -> Traced:
        """The trace of the started Worker."""

    def close(self) -> None:
        """End the children."""


@dataclass(frozen=True)
class WorkerBody:
    """The body of a child process that is a Worker: it runs ``graph(orch, args, config)``.

    ``worker`` has not been started. Its children start in this process, after the memory of all
    levels above was mapped.
    """

    context: ChildContext
    worker: NestedWorker

    def __call__(self, start: ChildStart) -> None:
        """Run the Worker until its parent asks it to close."""
        start.doing("starting its own children")
        self.worker.start_as_child(start.path)
        try:
            serve(start, self.context, self.worker.run_graph, traced=self.worker.tracing)
        finally:
            self.worker.close()
