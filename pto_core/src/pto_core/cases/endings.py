"""Explain why a child process ended before it had run all cases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pto_core.cases.activity import SHOWN_KERNELS, RunningKernel, core_name, describe
from pto_core.cases.job import Job
from pto_core.errors import (
    InternalError,
    OrchestrationError,
    PtoError,
    TaskFailedError,
    TaskTimeoutError,
)
from pto_core.errors.values import signal_text

_PHASES = {
    "starting": "starting",
    "loading": "loading golden.py and kernel_config.py",
    "compile": "compiling",
    "open": "opening the device",
    "inputs": "in generate_inputs",
    "run": "running on the device",
    "reference": "in compute_golden",
    "compare": "comparing",
    "explain": "running again to explain the wrong output",
    "close": "closing the device",
}
_FUNCTIONS = {
    "loading": "golden.py or kernel_config.py",
    "inputs": "generate_inputs",
    "reference": "compute_golden",
}


@dataclass
class ChildProgress:
    """The last known state of the child, collected from its events."""

    cases: list[str] = field(default_factory=list)
    case: Mapping[str, Any] | None = None
    phase: str = "starting"
    kernels: dict[int, str] = field(default_factory=dict)
    blocks: int | None = None
    cache_dir: Path | None = None
    failure: PtoError | None = None
    finished: bool = False
    seed: int | None = None
    """The current seed of a sweep over seeds."""
    tasks_ran: bool = True
    """Whether a task has started since the run began; True if the backend does not report it."""

    @property
    def doing(self) -> str:
        """The current activity of the child, as a phrase that messages insert after "while"."""
        return _PHASES.get(self.phase, self.phase)

    def describe(self, kernels: Sequence[RunningKernel], joined_by: str) -> str:
        """List the first kernels with their tasks and cores, and count the remaining kernels."""
        shown = [describe(one, self.kernels, self.blocks) for one in kernels[:SHOWN_KERNELS]]
        more = len(kernels) - len(shown)
        return joined_by.join(shown) + (f"{joined_by}{more} more" if more else "")

    def fields(self, kernel: RunningKernel) -> dict[str, Any]:
        """Return the task, func_id, core and name of a kernel as the fields of an error."""
        return {
            "task": kernel.task,
            "func_id": kernel.func_id,
            "core": kernel.core,
            "kernel": self.kernels.get(kernel.func_id),
        }


def timeout_error(
    state: ChildProgress, timeout_s: float, stuck: Sequence[RunningKernel], place: str | None
) -> TaskTimeoutError:
    """Return the error of a case that exceeded its time limit; it names the stuck kernels.

    ``place`` is the line of the user's Python code that the child was executing, or None. The error
    names it if no kernel is stuck.
    """
    what = f"case {state.case['case']!r}" if state.case else "the case"
    limit = f"{what} was ended at its time limit of {timeout_s:g} s (--timeout)"
    advice = "check it for an endless loop, or raise the limit"
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
        why = f" while {state.doing}; no kernel is stuck; raise the limit, or reduce the work"
    else:
        where = f" (it was at {place})" if place else ""
        why = f": {function} did not return{where}; {advice}"
    return TaskTimeoutError(f"{limit}{why}", timeout_s=timeout_s)


def named(error: PtoError, blocks: int | None) -> PtoError:
    """Return the error of a run with a message that suits the user of a case.

    The new message contains the func_id and the user's name for the core. It omits advice about the
    device, because the user of a case has no device object.
    """
    names = ("kernel", "func_id", "core")
    kernel, func_id, core = (getattr(error, name, None) for name in names)
    message = error.message
    if isinstance(error, TaskTimeoutError) and "; " in message:
        what, _, _advice = message.rpartition("; ")
        message = f"{what}; check it for an endless loop, or raise task_timeout_s"
    if core is not None:
        message = message.replace(f"core {core}", core_name(core, blocks))
    if kernel and func_id is not None and "func_id" not in message:
        message = message.replace(f"kernel {kernel!r}", f"kernel {kernel!r} (func_id {func_id})", 1)
    if message == error.message:
        return error
    renamed = type(error)(message, **{name: getattr(error, name) for name in error.fields})
    renamed.__cause__ = error.__cause__
    for note in getattr(error, "__notes__", ()):
        renamed.add_note(note)
    return renamed


def seed_note(job: Job, case: str, seed: int) -> str:
    """Return a note with the command that reproduces the failure of a sweep."""
    return f"seed {seed} of {job.seeds} failed first; reproduce it with: {job.command(case, seed)}"


def death_error(state: ChildProgress, code: int, running: Sequence[RunningKernel]) -> PtoError:
    """Return the error of a child that exited with ``code``; ``running``: the kernels that ran."""
    # If the backend recorded which thread received the signal, only the kernel of that thread is a
    # suspect.
    suspects = [kernel for kernel in running if kernel.signal] or running
    how = _end_text(code)
    if suspects:
        return TaskFailedError(
            f"{state.describe(suspects, ' or ')} crashed: {how}; its process has ended; other "
            "processes are not affected",
            **state.fields(suspects[0]),
            signal=-code if code < 0 else None,
        )
    message = f"the process of the case {how} while {state.doing}"
    if code < 0:
        return TaskFailedError(f"{message}, outside any kernel", signal=-code)
    return InternalError(f"{message} without a result")


def orchestration_death_error(code: int) -> OrchestrationError:
    """Return the error of a child whose C++ orchestration crashed."""
    return OrchestrationError(
        f"the orchestration crashed: {_end_text(code)}; its process has ended; other "
        "processes are not affected",
        signal=-code if code < 0 else None,
    )


def _end_text(code: int) -> str:
    return f"ended with code {code}" if code >= 0 else f"ended with {signal_text(-code)}"
