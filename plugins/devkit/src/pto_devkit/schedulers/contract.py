"""The contract of schedulers as a test class."""

from __future__ import annotations

from typing import Any, ClassVar

from pto_devkit.capabilities import contract_test
from pto_devkit.schedulers import policies
from pto_devkit.schedulers.subject import SchedulerSubject


class SchedulerContract:
    """The contract of placement policies. A subclass sets ``scheduler`` to its name."""

    scheduler: ClassVar[str]
    subject: ClassVar[SchedulerSubject]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.subject = SchedulerSubject.load(cls.scheduler)

    test_picks_a_candidate = contract_test(policies.check_picks_a_candidate)
    test_arguments_stay = contract_test(policies.check_arguments_stay)
    test_runs_with_policy = contract_test(policies.check_runs_with_policy)
    test_a_worker_asks_the_policy = contract_test(policies.check_a_worker_asks_the_policy)
