"""Call the program's placement policy without passing its exceptions to the engine.

The engine calls the policy during a dispatch, in which it cannot handle an exception.
"""

from __future__ import annotations

from collections.abc import Sequence

from pto_core._native import integer
from pto_core.errors import UsageError
from pto_core.hierarchy.engine.policy import least_loaded
from pto_core.interfaces import Policy


class Placement:
    """Calls ``policy``; after an exception, the default policy is used for the rest of the run.

    The run is cancelled and raises the error. The error is dropped at the end of the run, because
    the frames of its traceback refer to the Worker.
    """

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._has_failed = False  # whether the policy has failed in this run
        self._error: UsageError | None = None  # the error of this run
        self.is_cancel_due = False

    def __call__(self, candidates: Sequence[tuple[int, int]], preferred: int) -> int:
        """Return the child that the policy picks; after a failure, that of the default policy."""
        if not self._has_failed:
            picked = self._pick(candidates, preferred)
            if picked is not None:
                return picked
        return least_loaded(candidates, preferred)

    def begin(self) -> None:
        """Use the program's policy again in the new run."""
        self._has_failed = self.is_cancel_due = False

    def end(self) -> UsageError | None:
        """Return the error of the policy in the run that has ended, or None."""
        error, self._error = self._error, None
        return error

    def forget(self) -> None:
        """Drop the reference to the policy, because the Worker was deleted."""
        self._policy = least_loaded

    def _pick(self, candidates: Sequence[tuple[int, int]], preferred: int) -> int | None:
        try:
            picked = self._policy(candidates, preferred)
        except BaseException as error:  # noqa: BLE001 - it becomes the error of the run
            self._fail(
                f"the placement policy raised {type(error).__name__}: {error}; a policy "
                "returns one of the children that it receives",
                error,
            )
            return None
        children = [child for child, _ in candidates]
        child = integer(picked, 0, 2**31 - 1)
        if child in children:
            return child
        self._fail(
            f"the placement policy picked {picked!r}, which has no free space or is not a child; "
            f"return one of {children}"
        )
        return None

    def _fail(self, message: str, cause: BaseException | None = None) -> None:
        self._has_failed = self.is_cancel_due = True
        self._error = UsageError(message, name="policy")
        self._error.__cause__ = cause
