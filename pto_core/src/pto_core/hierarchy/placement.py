"""A policy of the program that picks children, with what may be wrong with it kept from the engine.

An engine asks it in the middle of a dispatch, where nothing may be raised.
"""

from __future__ import annotations

import _thread
from collections.abc import Sequence

from pto_core.errors import UsageError
from pto_core.hierarchy.engine.interface import Policy, least_loaded


class Placement:
    """Asks ``policy`` as long as it gives one of the candidates, and the engine's own afterwards.

    ``error`` says why not any more; a run that has one ends with it.
    """

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._is_told = False
        self.error: UsageError | None = None

    def __call__(self, candidates: Sequence[tuple[int, int]], preferred: int) -> int:
        """Pick a child."""
        if self.error is None:
            picked = self._pick(candidates, preferred)
            if picked is not None:
                return picked
        return least_loaded(candidates, preferred)

    def begin(self) -> None:
        """Ask the policy again: a run begins."""
        self._is_told = False
        self.error = None

    def take_untold(self) -> UsageError | None:
        """Give the error, once a run."""
        if self._is_told:
            return None
        self._is_told = self.error is not None
        return self.error

    def _pick(self, candidates: Sequence[tuple[int, int]], preferred: int) -> int | None:
        try:
            picked = self._policy(candidates, preferred)
        except KeyboardInterrupt:
            _thread.interrupt_main()  # where it is of use
            return None
        except BaseException as error:  # noqa: BLE001 - it becomes the error of the run
            self.error = UsageError(
                f"the placement policy raised {type(error).__name__}: {error}; a policy gives one "
                "of the children that it is given",
                name="policy",
            )
            self.error.__cause__ = error
            return None
        children = [child for child, _ in candidates]
        if isinstance(picked, int) and picked in children:
            return picked
        self.error = UsageError(
            f"the placement policy picked {picked!r}, which has no room, or is no child; pick one "
            f"of {children}",
            name="policy",
            value=picked,
        )
        return None
