"""The contract of schedulers as a test class."""

from __future__ import annotations

from typing import Any, ClassVar

from pto_devkit.capabilities import contract_test, withdraw_unclaimed
from pto_devkit.schedulers import engines, policies
from pto_devkit.schedulers.subject import SchedulerSubject


class SchedulerContract:
    """The contract of engines and placement policies. A subclass sets ``scheduler`` to its name."""

    scheduler: ClassVar[str]
    subject: ClassVar[SchedulerSubject]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.subject = SchedulerSubject.load(cls.scheduler)
        withdraw_unclaimed(cls, cls.subject.plugin.capabilities)

    test_sequential_answer = contract_test(engines.check_sequential_answer, "engine")
    test_lost_children = contract_test(engines.check_lost_children, "engine")
    test_raw_hazards = contract_test(engines.check_raw_hazards, "engine")
    test_cancelled_runs = contract_test(engines.check_cancelled_runs, "engine")
    test_deadlocks = contract_test(engines.check_deadlocks, "engine")
    test_refusals_change_nothing = contract_test(engines.check_refusals_change_nothing, "engine")
    test_engines_are_apart = contract_test(engines.check_engines_are_apart, "engine")
    test_policy_is_used = contract_test(engines.check_policy_is_used, "engine")
    test_reference_order = contract_test(engines.check_reference_order, "reference_order")
    test_picks_a_candidate = contract_test(policies.check_picks_a_candidate, "policy")
    test_arguments_stay = contract_test(policies.check_arguments_stay, "policy")
    test_runs_with_policy = contract_test(policies.check_runs_with_policy, "policy")
    test_a_worker_asks_the_policy = contract_test(policies.check_a_worker_asks_the_policy, "policy")
