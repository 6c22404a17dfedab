"""Programs: functions that submit the tasks of a run through a session.

``Worker.run``, ``graph``, ``check`` and ``capture`` accept two kinds of functions: a program, which
receives a session and the arrays in ``args``, and a graph function, which receives ``orch``,
``args`` and ``config``. :func:`prepared` distinguishes them.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any, Concatenate, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from pto_core._worker import Orchestrator, TaskArgs, TaskArgsView, TensorArgType, is_private
from pto_core.config.options import CHECK
from pto_core.errors import UsageError
from pto_core.errors.values import invalid_value, shown
from pto_core.kernels import CallConfig
from pto_core.worker.runs import GraphFunction
from pto_core.worker.session import Session
from pto_core.worker.tasks import add_array

Program: TypeAlias = Callable[Concatenate[Session, ...], object]
"""A function that submits the tasks of a run through a session."""

Arrays: TypeAlias = Sequence[npt.NDArray[Any]]
"""The arrays of a Worker that a program receives after the session."""

_ADVICE = (
    "pass a tuple of arrays of the Worker to a program, such as args=(x,), or a TaskArgs to a "
    "graph function"
)


class ProgramFunction:
    """A program as a graph function."""

    is_replayed = False
    """Whether a replay repeats its submits."""

    def __init__(self, program: Program, arrays: Arrays, session: Session) -> None:
        functools.update_wrapper(self, program)
        self._program, self._arrays, self._session = program, arrays, session

    def __call__(self, orch: Orchestrator, args: TaskArgsView, config: CallConfig) -> object:
        """Call the program with a session that submits to ``orch``."""
        with self._session.submitting_to(orch, self.is_replayed) as session:
            return self._program(session, *self._arrays)


def prepared(
    function: GraphFunction | Program,
    args: object,
    hazards: str | None,
    make_session: Callable[..., Session],
) -> tuple[GraphFunction, Any, str | None]:
    """Return a graph function that calls ``function``, its arguments, and the hazards.

    With a list or tuple of arrays as ``args``, the function is a program. With a TaskArgs, it is a
    graph function. Without ``args``, a function that requires exactly one positional argument, and
    has no ``*args``, is a program. Any other that accepts three is a graph function. The default
    hazards of a program are ``"full"``; those of a graph function depend on the call. Raises
    UsageError.
    """
    graph = cast(GraphFunction, function), args, hazards
    is_program = isinstance(args, list | tuple)
    given = task_args(args)
    arrays: Arrays = args if isinstance(args, list | tuple) else ()
    if not callable(function) or not (args is None or is_program):
        return graph
    is_plain = isinstance(function, FunctionType) and not function.__defaults__
    if is_plain and not is_program and function.__code__.co_argcount == 3:
        return graph  # the usual case; a signature takes 10 us
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return graph
    if not is_program and not _requires_one(signature) and _accepts(signature, 3):
        return graph
    if not _accepts(signature, 1 + len(arrays)):
        name = getattr(function, "__name__", shown(function))
        raise UsageError(
            f"{name}() cannot be called with a session and the {len(arrays)} arrays of "
            "args; write a program, def program(s, x, out), and pass its arrays as args=(x, out), "
            "or a graph function, def graph(orch, args, config), and pass a TaskArgs",
            name="graph",
            value=function,
        )
    chosen = "full" if hazards is None else hazards
    is_checked = isinstance(chosen, str) and chosen == CHECK
    session = make_session(hazards="raw" if is_checked else chosen)
    made = ProgramFunction(cast(Program, function), arrays, session)
    return made, given, chosen


def task_args(args: object) -> Any:
    """Return ``args``; if it is a list or tuple of arrays, return a TaskArgs with them.

    Raises UsageError for any other object, and for an array that is not memory of a Worker, because
    tasks would get a copy of it, and a replay could not replace the copy.
    """
    if args is None or isinstance(args, TaskArgs | TaskArgsView):
        return args
    if not isinstance(args, list | tuple):
        raise invalid_value("args", args, _ADVICE)
    made = TaskArgs()
    for place, array in enumerate(args):
        try:
            add_array(made, array, TensorArgType.INOUT, f"args[{place}]")
        except UsageError:
            if isinstance(array, np.ndarray):
                raise
            raise UsageError(
                f"args[{place}] is {shown(array)}, which is no array; {_ADVICE}",
                name="args",
                value=args,
            ) from None
        tensor = made.tensors[place]
        if is_private(tensor.address, tensor.nbytes):
            raise UsageError(
                f"args[{place}] is an array of this process only, which the children cannot see; "
                "pass an array of Worker.shared_array(shape, dtype), or worker.array(x), a copy of "
                "x in shared memory",
                name="args",
                value=place,
            )
    return made


def _requires_one(signature: inspect.Signature) -> bool:
    """Return whether a function requires one positional argument, and has no ``*args``."""
    kinds = [one.kind for one in signature.parameters.values() if one.default is one.empty]
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return inspect.Parameter.VAR_POSITIONAL not in kinds and sum(map(kinds.count, positional)) == 1


def _accepts(signature: inspect.Signature, count: int) -> bool:
    """Return whether a function can be called with this number of positional arguments."""
    try:
        signature.bind(*range(count))
    except TypeError:
        return False
    return True
