"""Explain a wrong output: which task wrote its first wrong element."""

from __future__ import annotations

import math

from pto_core.cases.report import OutputReport
from pto_core.errors import PtoError
from pto_insight.graphs import AccessLog, TaskGraph

_MOST_RACES = 3


def explain_wrong(log: AccessLog, output: OutputReport, element_bytes: int) -> str:
    """Return a note about the last writers of the first wrong element of an output.

    ``log``: the access log of another run on the same inputs. Measured accesses decide, if it has
    them; otherwise declarations.
    """
    assert output.first_index is not None, "the output is wrong"
    strides = [math.prod(output.shape[dim + 1 :]) for dim in range(len(output.shape))]
    flat = sum(at * step for at, step in zip(output.first_index, strides, strict=True))
    writers = TaskGraph(log).last_writers(output.name, flat * element_bytes)
    element = f"{output.name}[{', '.join(map(str, output.first_index))}]"
    if not writers:
        verb = "writes" if log.is_measured else "declares that it writes"
        return f"no task {verb} {element}"
    lines = "\n".join(f"  {writer}" for writer in writers)
    if len(writers) == 1:
        return f"{element} was last written by\n{lines}"
    return f"{element} was written by {len(writers)} tasks that nothing orders:\n{lines}"


def not_measured(runtime: str, error: PtoError) -> str:
    """Return a note for a wrong output of which the writers are not known."""
    return (
        f"the tasks that wrote the wrong element are not known: tasks of {runtime} declare "
        f"nothing, and their accesses could not be measured: {error}"
    )


def explain_unsteady(log: AccessLog, *, has_seed: bool) -> str:
    """Return a note about a result that is right in a second run on the same inputs.

    With a seed, the order of the tasks was the same in both runs.
    """
    findings = TaskGraph(log).check()
    races = [*findings.races, *findings.declared][:_MOST_RACES]
    found = "\n".join(map(str, races)) or _no_race(log)
    if has_seed:
        return (
            "a second run on the same inputs, with the same order of tasks, is right: the result "
            f"depends on what the first run left, such as static data of a kernel\n{found}"
        )
    return f"the result is not deterministic: a second run on the same inputs is right\n{found}"


def _no_race(log: AccessLog) -> str:
    if log.is_measured:
        return "no tasks race by the bytes that they touched in a measured run"
    return "no tasks race by what they declare; check the kernels"
