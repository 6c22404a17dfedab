"""The contract of links as a test class."""

from __future__ import annotations

from typing import Any, ClassVar

from link_contract import endings, hostile, keys, traffic, waiting
from link_contract.subject import LinkSubject
from pto_devkit.checks import contract_test, withdraw_unclaimed


class LinkContract:
    """The contract of links. A subclass sets ``link`` to its name.

    ``giant``: for a connection without keys, the first bytes of a message that announces a part of
    extreme length. ``address`` and ``open_address``: for a link whose addresses are not those of
    TCP, a free address of this machine, and one that other machines can reach.
    """

    link: ClassVar[str]
    giant: ClassVar[bytes]
    address: ClassVar[str] = "tcp://127.0.0.1:0"
    open_address: ClassVar[str] = "tcp://0.0.0.0:0"
    subject: ClassVar[LinkSubject]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.subject = LinkSubject.load(cls.link, cls.address, cls.open_address, cls.giant)
        withdraw_unclaimed(cls, cls.subject.plugin.capabilities)

    test_messages_arrive_whole = contract_test(traffic.check_messages_arrive_whole)
    test_messages_in_order = contract_test(traffic.check_messages_in_order)
    test_full_queue = contract_test(traffic.check_full_queue)
    test_refused_messages = contract_test(traffic.check_refused_messages)
    test_peers_are_apart = contract_test(traffic.check_peers_are_apart)
    test_peers_do_not_stop_each_other = contract_test(traffic.check_peers_do_not_stop_each_other)
    test_wait_for_descriptors = contract_test(waiting.check_wait_for_descriptors)
    test_wait_wakes_at_once = contract_test(waiting.check_wait_wakes_at_once)
    test_wait_sleeps = contract_test(waiting.check_wait_sleeps)
    test_idle_calls_return = contract_test(waiting.check_idle_calls_return)
    test_close = contract_test(endings.check_close)
    test_close_while_sending = contract_test(endings.check_close_while_sending)
    test_killed_peer = contract_test(endings.check_killed_peer)
    test_reconnection = contract_test(endings.check_reconnection)
    test_listener_restarts = contract_test(endings.check_listener_restarts)
    test_addresses = contract_test(endings.check_addresses)
    test_nothing_is_left = contract_test(endings.check_nothing_is_left)
    test_garbage = contract_test(hostile.check_garbage)
    test_half_open_connections = contract_test(hostile.check_half_open_connections)
    test_giant_length = contract_test(hostile.check_giant_length)
    test_oversized_parts = contract_test(hostile.check_oversized_parts)
    test_without_keys = contract_test(keys.check_without_keys, "!peer_keys")
    test_key_pairs = contract_test(keys.check_key_pairs, "peer_keys")
    test_peer_keys = contract_test(keys.check_peer_keys, "peer_keys")
    test_wrong_keys = contract_test(keys.check_wrong_keys, "peer_keys")
    test_allowed_keys_change = contract_test(keys.check_allowed_keys_change, "peer_keys")
    test_traffic_is_encrypted = contract_test(
        keys.check_traffic_is_encrypted, "encrypted", "peer_keys"
    )
