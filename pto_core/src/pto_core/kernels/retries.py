"""The rule by which a failed task runs again: how often, after which exceptions and waits."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pto_core._native import integer, number
from pto_core.errors import UsageError
from pto_core.errors.values import invalid_value, shown

LONGEST_WAIT_S = 600
"""The longest wait before an attempt."""
NEVER_AGAIN_MS = 2**32 - 1  # kNeverAgain in progress_table.hpp


@dataclass(frozen=True)
class Retries:
    """The rule by which a task runs again: ``@task(retries=Retries(3, on=OSError, backoff_s=1))``.

    ``count``: how often it may run again. ``on``: an exception class, or several in a tuple; the
    task does not run again after any other exception. By default, it runs again after each
    exception. After the death of a child, it runs again without a wait, whatever ``on`` is.
    ``backoff_s``: the seconds between the first failure and the second attempt. Each further wait
    is twice as long, up to 600 s. Other tasks run during a wait. Raises UsageError.
    """

    count: int
    on: type[BaseException] | tuple[type[BaseException], ...] = BaseException
    backoff_s: float = 0.0

    if not TYPE_CHECKING:  # type checkers know the parameters

        def __new__(cls, *args: object, **given: object) -> Retries:
            """Raise UsageError for an unknown parameter."""
            for name in given.keys() - cls.__dataclass_fields__.keys():
                raise UsageError(
                    f"Retries has no parameter {name!r}; write "
                    "Retries(3, on=(OSError, TimeoutError), backoff_s=0.1)",
                    name=name,
                )
            return super().__new__(cls)

    def __post_init__(self) -> None:
        object.__setattr__(self, "count", _count(self.count))
        classes = self.on if isinstance(self.on, tuple) else (self.on,)
        for one in classes:
            if not isinstance(one, type) or not issubclass(one, BaseException):
                raise UsageError(
                    f"on contains {shown(one)}, which is not an exception class; pass one class or "
                    "a tuple of classes, such as on=(OSError, TimeoutError)",
                    name="on",
                    value=one,
                )
        seconds = number(self.backoff_s)
        if seconds is None or not 0 <= seconds[1] <= LONGEST_WAIT_S:
            raise invalid_value(
                "backoff_s",
                self.backoff_s,
                f"pass the seconds before the second attempt, from 0 to {LONGEST_WAIT_S}",
            )
        object.__setattr__(self, "backoff_s", float(seconds[1]))

    def wait_ms(self, error: BaseException, attempt: int) -> int:
        """Return the wait after an attempt has raised, for the loop of the child."""
        if not isinstance(error, self.on):
            return NEVER_AGAIN_MS
        # an exponent that cannot overflow
        wait_s = min(self.backoff_s * 2.0 ** min(attempt - 1, 500), LONGEST_WAIT_S)
        return math.ceil(wait_s * 1000)


def _count(value: object) -> int:
    count = integer(value, 0, 2**31 - 1)
    if count is None:
        raise invalid_value(
            "retries",
            value,
            "set how often the task may run again, from 0, or pass pto_core.Retries(3, on=OSError)",
        )
    return count


def as_retries(value: int | Retries) -> Retries:
    """Return the Retries that a program passed, or those that an integer means."""
    return value if isinstance(value, Retries) else Retries(value)


NO_RETRIES = Retries(0)
