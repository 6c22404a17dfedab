"""Why a child ended before its work was done, in words."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pto_core.cases.activity import RunningKernel, core_name, describe
from pto_core.cases.job import Job
from pto_core.errors import (
    InternalError,
    OrchestrationError,
    PtoError,
    TaskFailedError,
    TaskTimeoutError,
)

_SHOWN_KERNELS = 4
_PHASES = {
    "starting": "starting",
    "loading": "loading golden.py and kernel_config.py",
    "compile": "compiling",
    "open": "opening the device",
    "inputs": "in generate_inputs",
    "run": "running on the device",
    "reference": "in compute_golden",
    "compare": "comparing",
    "close": "closing the device",
}
_FUNCTIONS = {
    "loading": "golden.py or kernel_config.py",
    "inputs": "generate_inputs",
    "reference": "compute_golden",
}

_SIGNALS = {
    "SIGSEGV": "an invalid memory access",
    "SIGBUS": "an invalid memory access",
    "SIGFPE": "an arithmetic error such as a division by zero",
    "SIGILL": "an invalid instruction",
    "SIGABRT": "abort()",
    "SIGKILL": "killed from outside, perhaps for lack of memory",
}


@dataclass
class ChildState:
    """What the child has told so far."""

    cases: list[str] = field(default_factory=list)
    case: Mapping[str, Any] | None = None
    phase: str = "starting"
    kernels: dict[int, str] = field(default_factory=dict)
    blocks: int | None = None
    cache_dir: Path | None = None
    failure: PtoError | None = None
    finished: bool = False
    seed: int | None = None
    """The seed that a sweep is at."""
    tasks_ran: bool = True
    """Whether a task started since the run did; also where nobody can tell."""

    @property
    def doing(self) -> str:
        """What it was doing, to follow "while"."""
        return _PHASES.get(self.phase, self.phase)

    def describe(self, kernels: Sequence[RunningKernel], joined_by: str) -> str:
        """Name kernels, tasks and cores, but not more than a few."""
        shown = [describe(one, self.kernels, self.blocks) for one in kernels[:_SHOWN_KERNELS]]
        more = len(kernels) - len(shown)
        return joined_by.join(shown) + (f"{joined_by}{more} more" if more else "")

    def fields(self, kernel: RunningKernel) -> dict[str, Any]:
        """Give the same facts as the fields of an error."""
        return {
            "task": kernel.task,
            "func_id": kernel.func_id,
            "core": kernel.core,
            "kernel": self.kernels.get(kernel.func_id),
        }


def timeout_error(
    state: ChildState, timeout_s: float, stuck: Sequence[RunningKernel], place: str | None
) -> TaskTimeoutError:
    """Explain a case that was ended at its limit: the kernels that did not return, or ``place``.

    ``place`` is where the user's Python code was, if it ran.
    """
    what = f"case {state.case['case']!r}" if state.case else "the case"
    limit = f"{what} was ended after its limit of {timeout_s:g} s (--timeout)"
    advice = "look for an endless loop in it, or give it more time"
    if stuck:
        return TaskTimeoutError(
            f"{limit}: {state.describe(stuck, '; ')} did not return; {advice}",
            **state.fields(stuck[0]),
            timeout_s=timeout_s,
        )
    function = _FUNCTIONS.get(state.phase)
    if state.phase == "run" and (place or not state.tasks_ran):
        function = "the orchestration"
    if function is None:
        why = f" while {state.doing}, with no kernel stuck; give it more time, or less work"
    else:
        where = f" (it was at {place})" if place else ""
        why = f": {function} did not return{where}; {advice}"
    return TaskTimeoutError(f"{limit}{why}", timeout_s=timeout_s)


def named(error: PtoError, blocks: int | None) -> PtoError:
    """Give an error of a run as a person at a case needs it.

    It has the func_id and the core as people name it, and no advice about a device that the case
    does not hold.
    """
    names = ("kernel", "func_id", "core")
    kernel, func_id, core = (getattr(error, name, None) for name in names)
    message = error.message
    if isinstance(error, TaskTimeoutError) and "; " in message:
        what, _, _advice = message.rpartition("; ")
        message = f"{what}; look for an endless loop in it, or raise task_timeout_s"
    if core is not None:
        message = message.replace(f"core {core}", core_name(core, blocks))
    if kernel and func_id is not None and "func_id" not in message:
        message = message.replace(f"kernel {kernel!r}", f"kernel {kernel!r} (func_id {func_id})", 1)
    if message == error.message:
        return error
    told = type(error)(message, **{name: getattr(error, name) for name in error.fields})
    told.__cause__ = error.__cause__
    for note in getattr(error, "__notes__", ()):
        told.add_note(note)
    return told


def seed_note(job: Job, case: str, seed: int) -> str:
    """Say how to see a failure of a sweep again."""
    return f"seed {seed} of {job.seeds} failed first; see it again with: {job.command(case, seed)}"


def death_error(state: ChildState, code: int, running: Sequence[RunningKernel]) -> PtoError:
    """Explain a child that ended with ``code`` while the ``running`` kernels were under way."""
    # Where the backend noted which thread the signal came to, the others are innocent.
    suspects = [kernel for kernel in running if kernel.signal] or running
    how = _end_in_words(code)
    if suspects:
        return TaskFailedError(
            f"{state.describe(suspects, ' or ')} crashed: {how}; the process that ran it is gone, "
            "nothing else is affected",
            **state.fields(suspects[0]),
            signal=-code if code < 0 else None,
        )
    message = f"the process of the case {how} while {state.doing}"
    if code < 0:
        return TaskFailedError(f"{message}, outside any kernel", signal=-code)
    return InternalError(f"{message} without giving a result")


def orchestration_death_error(code: int) -> OrchestrationError:
    """Explain a child whose C++ orchestration crashed."""
    return OrchestrationError(
        f"the orchestration crashed: {_end_in_words(code)}; the process that ran it is gone, "
        "nothing else is affected",
        signal=-code if code < 0 else None,
    )


def _end_in_words(code: int) -> str:
    if code >= 0:
        return f"ended with code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"ended with {name} ({_SIGNALS[name]})" if name in _SIGNALS else f"ended with {name}"
