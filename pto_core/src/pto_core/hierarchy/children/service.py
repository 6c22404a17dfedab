"""The task loop of a child, and the requests that it answers between tasks."""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pto_core._hierarchy import ChildLoop
from pto_core.errors import ProtocolError
from pto_core.hierarchy.children.tracing import TraceOperations
from pto_core.hierarchy.failures import Failure
from pto_core.hierarchy.handles import materialised
from pto_core.kernels import CallConfig
from pto_core.user_ranges import forget_inherited_recorders

if TYPE_CHECKING:
    from pto_core.hierarchy.children.context import ChildContext
    from pto_core.hierarchy.children.tracing import Traced
    from pto_core.hierarchy.handles import Delivery
    from pto_core.hierarchy.processes import ChildStart

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
    requests that this kind of child handles. ``traced``: what runs inside the child, for traces.
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
        # number 0 selects the configuration of the run
        self._configs: dict[int, CallConfig | None] = {0: None}
        self._operations: dict[str, Operation] = {
            "config": self._configure,
            "callable": self._deliver,
            "forget": loop.forget,
            "close": loop.stop,
            **operations,
        }

    def __call__(self, request: bytes) -> bytes:
        try:
            operation, arguments = pickle.loads(request)
            if operation not in self._operations:
                raise ProtocolError(f"this child does not support the request {operation!r}")
            return pickle.dumps((True, self._operations[operation](*arguments)))
        except BaseException as error:  # noqa: BLE001 - the parent receives it
            return pickle.dumps((False, Failure.of(error).pack()))

    def invoking(self, invoke: Invoke) -> Callable[[Any, Any, int], None]:
        """Return the function that runs a task; its last argument is a configuration number."""

        def run(callable_: Any, args: Any, config: int) -> None:
            invoke(callable_, args, self._configs[config])

        return run

    def _configure(self, number: int, packed: bytes) -> None:
        self._configs[number] = CallConfig.unpack(packed)

    def _deliver(self, digest: bytes, deliveries: Sequence[Delivery]) -> None:
        callable_ = materialised(deliveries)
        self._loop.add(digest, callable_, accepts_argument(callable_))
