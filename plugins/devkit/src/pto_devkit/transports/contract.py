"""The contract of transports as a test class."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

from pto_devkit.checks import contract_test
from pto_devkit.transports import endings, traffic
from pto_devkit.transports.link import TransportSubject


class TransportContract:
    """The contract of transports. A subclass sets ``transport`` to the name of the transport.

    For a transport in Python, the subclass also defines two static methods that write the bytes
    ``noise`` unchanged to the wire: ``spoil_frames(parent_end, noise)`` for the child, and
    ``spoil_answers(child_end, noise)`` for the parent. For a native transport, this kit overwrites
    the shared memory.

    The contract does not require the capability ``same_addresses``, but a Worker does.
    """

    transport: ClassVar[str]
    subject: ClassVar[TransportSubject]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.subject = TransportSubject.load(
            cls.transport, getattr(cls, "spoil_frames", None), getattr(cls, "spoil_answers", None)
        )

    test_table = contract_test(traffic.check_table)
    test_memory_needed = contract_test(traffic.check_memory_needed)
    test_bells = contract_test(traffic.check_bells)
    test_frames_arrive_whole = contract_test(traffic.check_frames_arrive_whole)
    test_frames_stay_until_taken = contract_test(traffic.check_frames_stay_until_taken)
    test_frames_in_order = contract_test(traffic.check_frames_in_order)
    test_frames_in_order_clogged = contract_test(
        partial(traffic.check_frames_in_order, clogged=True)
    )
    test_answers_in_order = contract_test(traffic.check_answers_in_order)
    test_answers_in_order_clogged = contract_test(
        partial(traffic.check_answers_in_order, clogged=True)
    )
    test_answers_stay_until_the_next_poll = contract_test(
        traffic.check_answers_stay_until_the_next_poll
    )
    test_queue_holds_what_was_asked_for = contract_test(
        traffic.check_queue_holds_what_was_asked_for
    )
    test_full_queue_takes_fewer = contract_test(traffic.check_full_queue_takes_fewer)
    test_full_answers_are_refused = contract_test(traffic.check_full_answers_are_refused)
    test_largest_frame = contract_test(traffic.check_largest_frame)
    test_idle_calls_return = contract_test(endings.check_idle_calls_return)
    test_parent_closes = contract_test(endings.check_parent_closes)
    test_child_closes = contract_test(endings.check_child_closes)
    test_killed_child = contract_test(endings.check_killed_child)
    test_connection_is_made_again = contract_test(endings.check_connection_is_made_again)
    test_connections_are_apart = contract_test(endings.check_connections_are_apart)
    test_nothing_is_left = contract_test(endings.check_nothing_is_left)
    test_hostile_bytes = contract_test(traffic.check_hostile_bytes)
