"""A policy of the program that picks children, with what may be wrong with it kept from the engine.

An engine asks it in the middle of a dispatch, where nothing may be raised.
"""

from __future__ import annotations

from collections.abc import Sequence

from pto_core.errors import UsageError
from pto_core.hierarchy.engine.policy import least_loaded
from pto_core.interfaces import Policy


class Placement:
    """Asks ``policy`` as long as it gives one of the candidates, and the engine's own afterwards.

    An error says why not any more; a run that has one ends with it. It is kept no longer than that:
    its frames lead to the Worker.
    """

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._is_bad = False
        self._error: UsageError | None = None  # until it is told, or the run has ended

    def __call__(self, candidates: Sequence[tuple[int, int]], preferred: int) -> int:
        """Pick a child."""
        if not self._is_bad:
            picked = self._pick(candidates, preferred)
            if picked is not None:
                return picked
        return least_loaded(candidates, preferred)

    def begin(self) -> None:
        """Ask the policy again: a run begins."""
        self._is_bad = False

    @property
    def is_bad(self) -> bool:
        """Whether the policy is not asked any more in this run."""
        return self._is_bad

    def end(self) -> UsageError | None:
        """Give the error of the run, which has ended."""
        error, self._error = self._error, None
        return error

    def forget(self) -> None:
        """Let go of the policy: the Worker is gone."""
        self._policy = least_loaded

    def _pick(self, candidates: Sequence[tuple[int, int]], preferred: int) -> int | None:
        try:
            picked = self._policy(candidates, preferred)
        except BaseException as error:  # noqa: BLE001 - it becomes the error of the run
            self._fail(
                f"the placement policy raised {type(error).__name__}: {error}; a policy gives one "
                "of the children that it is given",
                error,
            )
            return None
        children = [child for child, _ in candidates]
        if isinstance(picked, int) and picked in children:
            return picked
        self._fail(
            f"the placement policy picked {picked!r}, which has no room, or is no child; pick one "
            f"of {children}"
        )
        return None

    def _fail(self, message: str, cause: BaseException | None = None) -> None:
        self._is_bad = True
        self._error = UsageError(message, name="policy")
        self._error.__cause__ = cause
