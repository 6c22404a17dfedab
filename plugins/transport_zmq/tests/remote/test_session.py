"""Sessions: greetings, refusals, invalid bytes, the lease, and the end."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from remote_link import BULK, CONTROL, IDENTITY, KIND, LEASE_NS, SESSION, Pair

from pto_core.errors import ProtocolError, UsageError
from pto_transport_zmq.remote.lease import SECOND, Lease
from pto_transport_zmq.remote.session import RemoteSession, SessionState, Side
from pto_transport_zmq.remote.wire import Kind, pack_head, pack_text, unpack

GATEWAY_NS = Lease(LEASE_NS).gateway_ns
RELAY_NS = Lease(LEASE_NS).relay_ns


@pytest.fixture
def pair() -> Pair:
    return Pair().open()


def changed(message, **members) -> list[bytes]:
    """Replace members of the head of a message."""
    return [pack_head(*unpack(message)._replace(**members)), *message[1:]]


def hello(relay: RemoteSession, now: int) -> list[bytes]:
    relay.reconnected(CONTROL, now)
    (message,) = relay.outgoing(CONTROL, now)
    assert unpack(message).kind == Kind.HELLO
    return message


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"core_version": "2.0"}, "version of ptorun-core differs: 1.0 on the parent's host, 2.0"),
        ({"byte_order": "big"}, "byte order differs: little on the parent's host, big"),
        ({"page_bytes": 65536}, "page size in bytes differs: 4096 on the parent's host, 65536"),
        ({"lease_ns": SECOND}, "lease in nanoseconds differs: 3000000000 on the parent's host"),
    ],
)
def test_a_gateway_that_does_not_match_refuses_by_name_and_number(change, text):
    pair = Pair(gateway=replace(IDENTITY, **change))
    pair.gateway.received(CONTROL, hello(pair.relay, pair.now), pair.now)
    assert pair.gateway.state is SessionState.CONNECTING
    (refused,) = pair.gateway.outgoing(CONTROL, pair.now)
    with pytest.raises(ProtocolError, match=text):
        pair.relay.received(CONTROL, refused, pair.now)
    assert text in pair.relay.reason
    assert pair.relay.state is SessionState.ENDING


def test_a_relay_checks_the_gateway_too():
    pair = Pair()
    other = Pair(*[replace(IDENTITY, core_version="2.0")] * 2)
    other.gateway.received(CONTROL, hello(other.relay, other.now), other.now)
    (welcome,) = other.gateway.outgoing(CONTROL, other.now, 1)
    hello(pair.relay, pair.now)
    with pytest.raises(ProtocolError, match=r"1\.0 on the parent's host, 2\.0 on the remote host"):
        pair.relay.received(CONTROL, welcome, pair.now)


def test_another_protocol_version_is_refused_and_the_gateway_stays():
    pair = Pair()
    greeting = hello(pair.relay, pair.now)
    future = [changed(greeting, version=2)[0] + b"more", b"another layout"]
    assert pair.gateway.received(CONTROL, future, pair.now) == []
    (refused,) = pair.gateway.outgoing(CONTROL, pair.now)
    with pytest.raises(ProtocolError, match="protocol version differs: 2 on the parent's host, 1"):
        pair.relay.received(CONTROL, refused, pair.now)
    valid = Pair()
    assert pair.gateway.state is SessionState.CONNECTING
    pair.gateway.received(CONTROL, hello(valid.relay, valid.now), pair.now)
    assert unpack(pair.gateway.outgoing(CONTROL, pair.now)[0]).kind == Kind.WELCOME


def test_a_relay_names_the_protocol_version_of_its_gateway():
    pair = Pair()
    message = changed(hello(pair.relay, pair.now), version=7)
    with pytest.raises(ProtocolError, match="version 7, but this side uses version 1"):
        pair.relay.received(CONTROL, message, pair.now)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"session": bytes(16)}, "serves another session"),
        ({"epoch": 4}, "epoch of the session differs: 4 on the parent's host, 1 on the remote"),
    ],
)
def test_the_greeting_of_another_session_or_epoch_is_refused(pair, change, text):
    greeting = changed(hello(pair.relay, pair.now), **change)
    pair.gateway.received(CONTROL, greeting, pair.now)
    assert pair.gateway.state is SessionState.OPEN
    refused = pair.gateway.outgoing(CONTROL, pair.now)[0]
    head = unpack(refused)
    assert head.kind == Kind.REFUSED
    assert {name: getattr(head, name) for name in change} == change
    assert text in refused[1].decode()
    # the refusal names another session or epoch, so it is ignored
    assert pair.relay.received(CONTROL, refused, pair.now) == []
    assert pair.relay.state is SessionState.OPEN


@pytest.mark.parametrize("change", [{"session": bytes(16)}, {"epoch": 2}, {"epoch": 0}])
def test_messages_of_another_session_or_epoch_change_nothing(pair, change):
    pair.relay.send(KIND, [b"x"])
    (message,) = pair.relay.outgoing(CONTROL, pair.now)
    for strange in (
        changed(message, **change),
        changed(message, **change, acknowledged=99),
        [pack_head(*unpack(message)._replace(**change, kind=Kind.END, body_bytes=0))],
    ):
        assert pair.gateway.received(CONTROL, strange, pair.now) == []
        assert pair.gateway.state is SessionState.OPEN
    assert len(pair.gateway.received(CONTROL, message, pair.now)) == 1


@pytest.mark.parametrize("side", Side)
@pytest.mark.parametrize(
    "message",
    [
        [],
        [b""],
        [b"GET / HTTP/1.1"],
        [bytes(88)],
        [b"PTOR" + bytes(84)],
    ],
    ids=["nothing", "empty", "http", "zeros", "magic"],
)
def test_invalid_bytes_end_this_session_only(pair, side, message):
    other = Pair().open()
    session = pair.relay if side is Side.RELAY else pair.gateway
    with pytest.raises(ProtocolError) as raised:
        session.received(BULK, message, pair.now)
    assert session.reason == str(raised.value)
    assert session.state is (SessionState.ENDING if side is Side.RELAY else SessionState.OVER)
    assert session.received(BULK, message, pair.now) == []
    other.relay.send(KIND, [b"x"])
    assert len(other.exchange()[1]) == 1


def test_a_message_in_the_wrong_channel_ends_the_session(pair):
    pair.relay.send(KIND, [b"x"])
    (message,) = pair.relay.outgoing(CONTROL, pair.now)
    with pytest.raises(ProtocolError, match="a message of channel 0 arrived in channel 1"):
        pair.gateway.received(BULK, message, pair.now)


@pytest.mark.parametrize("kind", [Kind.WELCOME, Kind.REFUSED, Kind.ENDED])
def test_a_gateway_refuses_the_messages_of_a_gateway(pair, kind):
    head = unpack(hello(pair.relay, pair.now))._replace(kind=kind, body_bytes=0)
    with pytest.raises(ProtocolError, match=f"parent's host sent {kind.name}, which is invalid"):
        pair.gateway.received(CONTROL, [pack_head(*head)], pair.now)


@pytest.mark.parametrize("kind", [Kind.HELLO, Kind.END])
def test_a_relay_refuses_the_messages_of_a_relay(pair, kind):
    head = unpack(hello(pair.relay, pair.now))._replace(kind=kind, body_bytes=0)
    with pytest.raises(ProtocolError, match=f"remote host sent {kind.name}, which is invalid"):
        pair.relay.received(CONTROL, [pack_head(*head)], pair.now)


@pytest.mark.parametrize("seed", range(200))
def test_damaged_messages_only_raise_protocol_errors(seed):
    choose = random.Random(seed)
    pair = Pair() if seed % 4 == 0 else Pair().open()
    now = pair.now
    pair.relay.send(KIND, [b"one", b"two"], choose.randrange(2))
    pair.relay.send_bulk(KIND, [b"three"])
    pair.relay.close("done", now) if seed % 5 == 0 else pair.relay.reconnected(BULK, now)
    valid = pair.relay.outgoing(CONTROL, now) + pair.relay.outgoing(BULK, now)
    for _ in range(30):
        message = [bytearray(part) for part in choose.choice(valid or [[bytes(88)]])]
        part = choose.choice(message)
        for _ in range(choose.randrange(1, 4)):
            part[choose.randrange(len(part))] = choose.choice(
                (0, 1, 0x7F, 0xFF, choose.getrandbits(8))
            )
        if choose.random() < 0.2:
            del part[choose.randrange(len(part)) :]
        if choose.random() < 0.1:
            message.append(choose.randbytes(choose.randrange(100)))
        for session in (pair.gateway, pair.relay):
            before, reason = session.state, None
            try:
                session.received(choose.choice((CONTROL, BULK)), message, now)
            except ProtocolError as error:
                reason = str(error)
            if reason is not None:
                assert before < SessionState.ENDING <= session.state
                assert session.reason == reason
            session.outgoing(CONTROL, now)
            session.outgoing(BULK, now)


def test_both_sides_know_each_other(pair):
    assert pair.relay.peer == pair.gateway.peer == IDENTITY


def test_a_relay_repeats_its_greeting_until_it_is_welcome(pair):
    hello(pair.relay, pair.now)
    assert pair.relay.outgoing(CONTROL, pair.now) == []
    pair.now += pair.relay.lease.heartbeat_ns
    (again,) = pair.relay.outgoing(CONTROL, pair.now)
    assert unpack(again).kind == Kind.HELLO


def test_the_gateway_is_over_at_the_end_of_its_lease(pair):
    begin_ns = pair.now
    assert pair.gateway.advance(begin_ns + GATEWAY_NS - 1) is SessionState.OPEN
    assert pair.gateway.deadline_ns <= begin_ns + GATEWAY_NS
    pair.relay.send(KIND, [b"x"])
    (message,) = pair.relay.outgoing(CONTROL, begin_ns)
    assert pair.gateway.received(CONTROL, message, begin_ns + GATEWAY_NS) == []
    assert pair.gateway.state is SessionState.OVER
    assert pair.gateway.reason == "the parent's host has not answered for 3.9 s"


def test_the_relay_is_over_after_its_wait(pair):
    begin_ns = pair.now
    pair.gateway.send(KIND, [b"x"])
    (message,) = pair.gateway.outgoing(CONTROL, begin_ns)
    assert pair.relay.advance(begin_ns + RELAY_NS - 1) is SessionState.OPEN
    assert pair.relay.received(CONTROL, message, begin_ns + RELAY_NS) == []
    assert pair.relay.state is SessionState.OVER
    assert pair.relay.reason == "the remote host has not answered for 4.48379 s"
    assert pair.relay.deadline_ns is None


def test_a_delayed_message_does_not_renew_the_lease(pair):
    begin_ns = pair.now
    pair.relay.send(KIND, [b"x"])
    (message,) = pair.relay.outgoing(CONTROL, begin_ns)
    assert len(pair.gateway.received(CONTROL, message, begin_ns + GATEWAY_NS - 1)) == 1
    assert pair.gateway.advance(begin_ns + GATEWAY_NS) is SessionState.OVER


def test_a_relay_that_ends_stops_the_gateway_even_if_its_message_is_lost(pair):
    pair.relay.close("the program has ended", pair.now)
    assert pair.relay.state is SessionState.ENDING
    (lost,) = pair.relay.outgoing(CONTROL, pair.now)
    assert unpack(lost).kind == Kind.END
    assert pair.relay.outgoing(CONTROL, pair.now) == []
    assert pair.relay.outgoing(BULK, pair.now) == []
    assert pair.gateway.advance(pair.now + GATEWAY_NS) is SessionState.OVER
    assert pair.relay.advance(pair.now + RELAY_NS - 1) is SessionState.ENDING
    assert pair.relay.advance(pair.now + RELAY_NS) is SessionState.OVER
    assert pair.relay.reason == "the program has ended"


def test_a_relay_repeats_its_end_until_the_gateway_confirms(pair):
    pair.relay.close("the program has ended", pair.now)
    pair.exchange()
    assert pair.gateway.state is SessionState.OVER
    assert pair.relay.state is SessionState.ENDING  # the processes of the gateway may still run
    pair.now += pair.relay.lease.heartbeat_ns
    assert pair.relay.deadline_ns == pair.now
    pair.gateway.confirm_end(pair.now)
    (ended,) = pair.gateway.outgoing(CONTROL, pair.now)
    assert unpack(ended).kind == Kind.ENDED  # this message is lost
    assert pair.gateway.outgoing(CONTROL, pair.now) == []
    pair.exchange()
    assert pair.relay.state is SessionState.OVER


def test_a_gateway_confirms_its_end_only_after_it(pair):
    with pytest.raises(UsageError, match="not over; close it"):
        pair.gateway.confirm_end(pair.now)
    pair.gateway.close("no memory", pair.now)
    assert pair.exchange() == ([], [])
    assert pair.relay.state is SessionState.OPEN
    pair.gateway.confirm_end(pair.now)
    pair.exchange()
    assert pair.relay.state is SessionState.OVER
    assert pair.relay.reason == "the remote host has ended the session: no memory"


def test_an_end_can_be_confirmed_on_another_way(pair):
    pair.relay.confirm_end(pair.now)
    assert pair.relay.state is SessionState.OVER


def test_a_silent_bulk_channel_ends_the_session_in_the_end(pair):
    end_ns = pair.now + 10 * LEASE_NS
    while pair.now < end_ns:
        assert pair.gateway.state is pair.relay.state is SessionState.OPEN
        pair.now += LEASE_NS // 20
        for source, target in ((pair.relay, pair.gateway), (pair.gateway, pair.relay)):
            source.outgoing(BULK, pair.now)  # all bulk messages are lost
            for message in source.outgoing(CONTROL, pair.now):
                target.received(CONTROL, message, pair.now)
    assert pair.gateway.advance(pair.now) is SessionState.OVER
    assert "bulk channel has carried nothing for 30 s" in pair.gateway.reason
    assert (
        pair.relay.state is SessionState.ENDING
    )  # only a control message can prove the gateway's end


def test_the_owner_is_not_woken_without_a_reason(pair):
    """After the owner has served a deadline, the next deadline is later."""
    for _ in range(200):
        for session in (pair.relay, pair.gateway):
            deadline_ns = session.deadline_ns
            if deadline_ns is None:
                continue
            pair.now = max(pair.now, deadline_ns)
            for channel in (CONTROL, BULK):
                session.outgoing(channel, pair.now)
            assert session.deadline_ns is None or session.deadline_ns > pair.now
    assert pair.relay.state is pair.gateway.state is SessionState.OVER


@pytest.mark.parametrize(("session", "epoch"), [(b"short", 1), (SESSION, 0), (SESSION, 2**32)])
def test_a_session_needs_a_name_and_an_epoch(session, epoch):
    with pytest.raises(UsageError, match="a name of 16 bytes and an epoch from 1"):
        RemoteSession(Side.RELAY, IDENTITY, session, epoch, 0)


def test_a_refusal_is_shown_without_control_characters():
    pair = Pair()
    head = unpack(hello(pair.relay, pair.now))
    body = pack_text("\x1b[2Jquota")
    refused = [pack_head(*head._replace(kind=Kind.REFUSED, body_bytes=len(body))), body]
    with pytest.raises(ProtocolError, match=r"refused the session:  \[2Jquota"):
        pair.relay.received(CONTROL, refused, pair.now)
