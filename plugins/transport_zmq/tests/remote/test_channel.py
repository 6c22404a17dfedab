"""Both channels of two sessions: space, credits, order, replays and heartbeats."""

from __future__ import annotations

import sys

import pytest
from remote_link import BULK, CONTROL, KIND, LEASE_NS, Pair

from pto_core.errors import CapacityError, ProtocolError, UsageError
from pto_transport_zmq.remote.lease import SECOND
from pto_transport_zmq.remote.wire import CHUNK_BYTES, LIMITS, MAX_PARTS, MIB, Kind, unpack

CHUNK = memoryview(bytes(MIB))
HEARTBEAT_NS = LEASE_NS // 10


@pytest.fixture
def pair() -> Pair:
    return Pair().open()


def bodies(messages) -> list[bytes]:
    return [b"".join(message.body) for message in messages]


def kinds(messages) -> list[int]:
    return [unpack(message).kind for message in messages]


def test_messages_arrive_with_kind_number_and_body(pair):
    assert pair.relay.send(KIND, [b"ab", memoryview(b"c")]) == 1
    assert pair.relay.send(KIND + 1, []) == 2
    assert pair.relay.send_bulk(KIND + 2, [b"bulk"]) == 1
    to_relay, to_gateway = pair.exchange()
    assert to_relay == []
    assert [(m.channel, m.kind, m.sequence) for m in to_gateway] == [
        (CONTROL, KIND, 1),
        (CONTROL, KIND + 1, 2),
        (BULK, KIND + 2, 1),
    ]
    assert bodies(to_gateway) == [b"abc", b"", b"bulk"]


def test_nothing_is_transmitted_before_the_greeting():
    pair = Pair()
    assert pair.relay.send(KIND, [b"early"]) == 1
    assert pair.relay.outgoing(CONTROL, pair.now) == []
    pair.relay.reconnected(CONTROL, pair.now)
    (hello,) = pair.relay.outgoing(CONTROL, pair.now)
    assert unpack(hello).kind == Kind.HELLO
    assert pair.relay.outgoing(CONTROL, pair.now) == []
    _, to_gateway = pair.open().wait(HEARTBEAT_NS)
    assert pair.gateway.control.inbox.delivered == 1
    assert to_gateway == []  # open() has delivered the message


def test_a_message_before_the_greeting_is_not_delivered(pair):
    stranger = Pair()
    pair.relay.send(KIND, [b"early"])
    (message,) = pair.relay.outgoing(CONTROL, pair.now)
    assert stranger.gateway.received(CONTROL, message, stranger.now) == []
    assert stranger.gateway.control.inbox.accepted == 0


@pytest.mark.parametrize(
    ("channel", "body", "count"),
    [
        (CONTROL, b"x", 4096),
        (CONTROL, bytes(16 * MIB), 4),
        (CONTROL, bytes(5 * MIB), 12),
        (BULK, CHUNK, 32),
    ],
)
def test_send_reports_that_there_is_no_space(pair, channel, body, count):
    send = pair.relay.send_bulk if channel == BULK else pair.relay.send
    assert [send(KIND, [body]) for _ in range(count)] == list(range(1, count + 1))
    assert send(KIND, [body]) is None
    assert send(KIND, [body]) is None
    pair.exchange()
    assert send(KIND, [body]) == count + 1


def test_the_limits_of_a_channel_hold_during_a_cut(pair):
    """The limits also hold during a cut: messages that wait for the connection count too."""
    pair.relay.reconnected(CONTROL, pair.now)
    for _ in range(LIMITS[CONTROL].messages):
        pair.relay.send(KIND, [b"x"])
    assert pair.relay.send(KIND, [b"x"]) is None


def test_invalid_messages_are_refused_and_change_nothing(pair):
    with pytest.raises(CapacityError, match=f"{16 * MIB + 1} bytes; the limit is {16 * MIB}"):
        pair.relay.send(KIND, [bytes(16 * MIB), b"x"])
    with pytest.raises(CapacityError, match=f"{MAX_PARTS} parts; the limit is {MAX_PARTS - 1}"):
        pair.relay.send(KIND, [b""] * MAX_PARTS)
    for kind in (0, Kind.HELLO, 15, 0x10000, -1):
        with pytest.raises(UsageError, match=f"kind {kind} is outside 16 to 65535"):
            pair.relay.send(kind, [b""])
    with pytest.raises(UsageError, match="cannot wait for bulk message 1"):
        pair.relay.bulk.send(KIND, [b""], 1)
    assert pair.relay.send(KIND, [b"valid"]) == 1


def test_bulk_messages_wait_for_credits(pair):
    window = LIMITS[BULK].messages
    for _ in range(window):
        pair.relay.send_bulk(KIND, [CHUNK])
    assert len(pair.exchange()[1]) == window
    for _ in range(window):  # acknowledged, but not consumed, so they use up the credits
        assert pair.relay.send_bulk(KIND, [CHUNK])
    assert pair.exchange()[1] == []
    pair.gateway.consumed(window // 4)
    assert len(pair.exchange()[1]) == window // 4
    pair.gateway.consumed(1)
    # a single credit is not announced at once, but with the next heartbeat
    assert pair.exchange()[1] == []
    assert len(pair.wait(HEARTBEAT_NS)[1]) == 1


@pytest.mark.parametrize("count", [-1, 1, 33])
def test_only_delivered_messages_can_be_consumed(pair, count):
    with pytest.raises(UsageError, match=f"{count} messages cannot be consumed; 0 delivered"):
        pair.gateway.consumed(count)


def test_a_control_message_follows_the_bulk_messages_that_it_names(pair):
    for text in (b"1", b"2", b"3"):
        pair.relay.send_bulk(KIND, [text])
    pair.relay.send(KIND, [b"no wait"])
    pair.relay.send(KIND, [b"after 2"], after_bulk=2)
    pair.relay.send(KIND, [b"behind it"])
    pair.relay.send(KIND, [b"after 3"], after_bulk=3)
    now = pair.now
    received = [
        bodies(pair.gateway.received(CONTROL, message, now))
        for message in pair.relay.outgoing(CONTROL, now)
    ]
    assert received == [[b"no wait"], [], [], []]
    assert pair.gateway.control.inbox.delivered == 1
    received = [
        bodies(pair.gateway.received(BULK, message, now))
        for message in pair.relay.outgoing(BULK, now)
    ]
    assert received == [[b"1"], [b"2", b"after 2", b"behind it"], [b"3", b"after 3"]]


def test_held_messages_are_bounded(pair):
    body = bytes(16 * MIB)
    pair.relay.send(KIND, [body], after_bulk=1)
    (message,) = pair.relay.outgoing(CONTROL, pair.now)
    head = unpack(message)
    gateway = pair.gateway.control
    for sequence in range(1, 5):
        assert gateway.received(head._replace(sequence=sequence), [body], pair.now) == []
    with pytest.raises(ProtocolError, match=f"{80 * MIB} bytes of control messages that wait"):
        gateway.received(head._replace(sequence=5), [body], pair.now)


def test_messages_that_are_held_count_as_long_as_they_are_held(pair):
    """The memory of the receiver is limited, so the sender must stop first."""
    body = bytes(16 * MIB)
    for _ in range(4):
        assert pair.relay.send(KIND, [body], after_bulk=1)
    assert pair.wait(3 * HEARTBEAT_NS) == ([], [])
    assert pair.relay.send(KIND, [body]) is None
    pair.relay.send_bulk(KIND, [b"x"])
    assert len(pair.exchange()[1]) == 5
    assert pair.relay.send(KIND, [body])


def test_messages_lost_at_a_cut_arrive_directly_after_the_greeting(pair):
    pair.gateway.send(KIND, [b"completion"])
    assert len(pair.gateway.outgoing(CONTROL, pair.now)) == 1  # this message is lost
    transmit(pair, 1)  # lost, too
    for session in (pair.relay, pair.gateway):
        session.reconnected(CONTROL, pair.now)
    to_relay, to_gateway = pair.exchange()
    assert (bodies(to_relay), bodies(to_gateway)) == ([b"completion"], [b"0"])


def transmit(pair, count: int) -> list:
    for number in range(count):
        pair.relay.send(KIND, [str(number).encode()])
    return pair.relay.outgoing(CONTROL, pair.now)


def test_a_duplicate_is_dropped_and_acknowledged_again(pair):
    first, second = transmit(pair, 2)
    assert len(pair.gateway.received(CONTROL, first, pair.now)) == 1
    assert pair.gateway.received(CONTROL, first, pair.now) == []
    (head,) = pair.gateway.outgoing(CONTROL, pair.now)
    assert (unpack(head).kind, unpack(head).acknowledged) == (Kind.HEARTBEAT, 1)
    assert len(pair.gateway.received(CONTROL, second, pair.now)) == 1
    assert pair.gateway.received(CONTROL, first, pair.now) == []


def test_a_gap_requests_one_replay_per_heartbeat(pair):
    _, second, third = transmit(pair, 3)
    assert pair.gateway.received(CONTROL, second, pair.now) == []
    assert kinds(pair.gateway.outgoing(CONTROL, pair.now)) == [Kind.REPLAY]  # this request is lost
    pair.now += HEARTBEAT_NS - 1
    assert pair.gateway.received(CONTROL, third, pair.now) == []
    assert pair.gateway.outgoing(CONTROL, pair.now) == []
    pair.now += 1
    assert pair.gateway.received(CONTROL, third, pair.now) == []
    (request,) = pair.gateway.outgoing(CONTROL, pair.now)
    assert unpack(request).kind == Kind.REPLAY
    pair.relay.received(CONTROL, request, pair.now)
    assert bodies(pair.exchange()[1]) == [b"0", b"1", b"2"]


def test_a_request_that_is_older_than_an_acknowledgement_replays_nothing(pair):
    first, second = transmit(pair, 2)
    pair.gateway.received(CONTROL, second, pair.now)
    (request,) = pair.gateway.outgoing(CONTROL, pair.now)
    pair.gateway.received(CONTROL, first, pair.now)
    pair.gateway.received(CONTROL, second, pair.now)
    pair.now += HEARTBEAT_NS
    (head,) = pair.gateway.outgoing(CONTROL, pair.now)
    pair.relay.received(CONTROL, head, pair.now)
    pair.relay.received(CONTROL, request, pair.now)
    assert kinds(pair.relay.outgoing(CONTROL, pair.now)) == [Kind.HEARTBEAT]


def test_the_loss_of_the_last_message_is_found_by_a_heartbeat(pair):
    transmit(pair, 1)
    assert bodies(pair.wait(3 * HEARTBEAT_NS)[1]) == [b"0"]


def test_an_idle_channel_sends_one_heartbeat_per_interval(pair):
    pair.wait(2 * HEARTBEAT_NS)
    begin_ns, heads = pair.now, 0
    while pair.now < begin_ns + 10 * HEARTBEAT_NS:
        pair.now += HEARTBEAT_NS // 10
        for channel in (CONTROL, BULK):
            for message in pair.relay.outgoing(channel, pair.now):
                heads += 1
                pair.gateway.received(channel, message, pair.now)
    assert 18 <= heads <= 20


def test_a_receiver_acknowledges_before_a_limit_is_reached(pair):
    quarter = LIMITS[CONTROL].messages // 4
    messages = transmit(pair, quarter)
    for message in messages[:-1]:
        pair.gateway.received(CONTROL, message, pair.now)
    assert pair.gateway.outgoing(CONTROL, pair.now) == []
    pair.gateway.received(CONTROL, messages[-1], pair.now)
    (head,) = pair.gateway.outgoing(CONTROL, pair.now)
    assert unpack(head).acknowledged == quarter
    pair.relay.send(KIND, [bytes(16 * MIB)])
    (message,) = pair.relay.outgoing(CONTROL, pair.now)
    pair.gateway.received(CONTROL, message, pair.now)
    assert kinds(pair.gateway.outgoing(CONTROL, pair.now)) == [Kind.HEARTBEAT]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"acknowledged": 1}, "acknowledged message 1, but the newest that was sent is 0"),
        ({"credits": 4097}, "credits up to message 4097; the limit is 4096"),
        ({"sequence": 4097}, "sent message 4097, but its credits end at 4096"),
        ({"echo_ns": 2**63}, f"echoed the clock {2**63}, but the newest that was sent is"),
        ({"sequence": 2**64 - 1}, "sent message 18446744073709551615"),
    ],
)
def test_a_peer_that_breaks_a_rule_is_refused(pair, change, reason):
    (message,) = transmit(pair, 1)
    head = unpack(message)._replace(**change)
    with pytest.raises(ProtocolError, match=reason):
        pair.gateway.control.received(head, message[1:], pair.now)


def test_numbers_have_64_bits(pair):
    """64 bits suffice for 500,000 years at a million messages per second."""
    newest = 2**63
    for channel in (pair.relay.control, pair.gateway.control):
        channel.outbox.last_sequence = channel.outbox.transmitted = newest
        channel.inbox.accepted = channel.inbox.delivered = newest
        channel.inbox.granted = newest + LIMITS[CONTROL].messages
        channel.outbox.note(newest, channel.inbox.granted)
    assert pair.relay.send(KIND, [b"x"]) == newest + 1
    assert [message.sequence for message in pair.exchange()[1]] == [newest + 1]


def test_a_copy_of_10_gib_needs_bounded_memory(pair):
    total, sent, kept = 10 * 1024, 0, 0
    received = 0
    while received < total:
        while sent < total and pair.relay.send_bulk(KIND, [b"head", CHUNK]):
            sent += 1
        kept = max(kept, pair.relay.bulk.outbox.kept_bytes)
        delivered = len(pair.exchange()[1])
        assert delivered <= LIMITS[BULK].messages
        received += delivered
        pair.gateway.consumed(delivered)
    assert kept <= LIMITS[BULK].bytes == 32 * CHUNK_BYTES
    assert pair.relay.bulk.outbox.kept_bytes <= LIMITS[BULK].bytes


def test_100_000_messages_need_no_more_memory_than_10_000(pair):
    def run(count: int) -> int:
        for _ in range(count // 50):
            for _ in range(50):
                assert pair.relay.send(KIND, [b"frame"])
                assert pair.gateway.send(KIND, [b"answer"])
            pair.now += SECOND // 1000
            to_relay, to_gateway = pair.exchange()
            assert len(to_relay) == len(to_gateway) == 50
        del to_relay, to_gateway
        pair.wait(2 * HEARTBEAT_NS)
        return sys.getallocatedblocks()

    warm = run(10_000)
    assert run(90_000) < warm + 500
    assert pair.relay.control.outbox.last_sequence == 100_000
