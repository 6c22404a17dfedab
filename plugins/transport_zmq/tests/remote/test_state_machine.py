"""Hypothesis drives two sessions: transmissions, losses, cuts and ticks in any order."""

from __future__ import annotations

from hypothesis import HealthCheck, Phase, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from remote_link import KIND, Pair

from pto_transport_zmq.remote.lease import MILLISECOND, SECOND
from pto_transport_zmq.remote.session import BULK, CONTROL, RemoteSession, SessionState, Side
from pto_transport_zmq.remote.wire import LIMITS, ChannelNumber

SIDES = st.sampled_from(Side)
CHANNELS = st.sampled_from(ChannelNumber)
PLACES = st.integers(0, 2**16)


class LossyLink(RuleBasedStateMachine):
    """Two sessions and a link whose messages the rules deliver, repeat and lose in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.pair = Pair().open()
        ends = [(side, channel) for side in Side for channel in ChannelNumber]
        self.flying: dict[tuple[Side, ChannelNumber], list] = {end: [] for end in ends}
        """Messages in flight, by sender and channel."""
        self.sent: dict[tuple[Side, ChannelNumber], list[bytes]] = {end: [] for end in ends}
        self.received: dict[tuple[Side, ChannelNumber], list[bytes]] = {end: [] for end in ends}
        """Received bodies, by sender and channel."""
        self.after: dict[Side, list[int]] = {side: [] for side in Side}

    def session(self, side: Side) -> RemoteSession:
        return self.pair.relay if side is Side.RELAY else self.pair.gateway

    @rule(
        side=SIDES,
        channel=CHANNELS,
        waits=st.booleans(),
        count=st.integers(1, 40),
        limit=st.sampled_from((0, 1, 3, 50)),
    )
    def send(self, side, channel, waits, count, limit):
        """Send messages; transmit some of them."""
        session, sent = self.session(side), self.sent[side, channel]
        for _ in range(count):
            body = f"{len(sent)}".encode()
            after = session.bulk.outbox.last_sequence if waits else 0
            if channel == BULK:
                sequence = session.send_bulk(KIND, [body])
            else:
                sequence = session.send(KIND, [body], after)
            if sequence is None:
                break
            sent.append(body)
            assert sequence == len(sent)
            if channel == CONTROL:
                self.after[side].append(after)
        self.transmit(side, channel, limit)

    @rule(place=PLACES, repeats=st.booleans())
    def arrive(self, place, repeats):
        """Let one message arrive, out of order; it may arrive again."""
        for (side, channel), flying, index in self.one_in_flight(place):
            self.deliver(side, channel, flying[index] if repeats else flying.pop(index))

    @rule(place=PLACES)
    def lose(self, place):
        for _, flying, index in self.one_in_flight(place):
            del flying[index]

    @rule()
    def carry_everything(self):
        for side, channel in self.flying:
            self.transmit(side, channel, LIMITS[CONTROL].messages)
            self.arrive_all(side, channel)

    @rule(channel=CHANNELS)
    def cut(self, channel):
        for side in Side:
            self.flying[side, channel].clear()

    @rule(channel=CHANNELS)
    def reconnect(self, channel):
        for side in Side:
            self.session(side).reconnected(channel, self.pair.now)

    @rule(time_ms=st.sampled_from((1, 10, 299, 300, 1000)))
    def wait(self, time_ms):
        self.pair.now += time_ms * MILLISECOND

    @invariant()
    def memory_is_bounded(self):
        for side in Side:
            for channel in (self.session(side).control, self.session(side).bulk):
                outbox, inbox = channel.outbox, channel.inbox
                assert outbox.last_sequence - outbox.acknowledged <= outbox.limits.messages
                assert 0 <= inbox.accepted - inbox.delivered <= inbox.limits.messages

    def one_in_flight(self, place: int):
        """Yield the sender and channel, the list and index of one message, if one is in flight."""
        busy = [(end, flying) for end, flying in self.flying.items() if flying]
        if busy:
            end, flying = busy[place % len(busy)]
            yield end, flying, place // len(busy) % len(flying)

    def transmit(self, side: Side, channel: ChannelNumber, limit: int) -> None:
        messages = self.session(side).outgoing(channel, self.pair.now, limit)
        assert len(messages) <= limit
        self.flying[side, channel] += messages

    def arrive_all(self, side: Side, channel: ChannelNumber) -> None:
        flying = self.flying[side, channel]
        while flying:
            self.deliver(side, channel, flying.pop(0))

    def deliver(self, side: Side, channel: ChannelNumber, message) -> None:
        target = self.session(side.peer)
        had_ended = target.state >= SessionState.ENDING
        for delivered in target.received(channel, message, self.pair.now):
            assert not had_ended
            number = ChannelNumber(delivered.channel)
            received = self.received[side, number]
            received.append(b"".join(delivered.body))
            assert received[-1] == self.sent[side, number][len(received) - 1]
            if number == BULK:
                target.consumed(1)
            else:
                assert len(self.received[side, BULK]) >= self.after[side][len(received) - 1]

    def teardown(self) -> None:
        """Repair the link, then require that everything arrives or both sides are over."""
        for channel in ChannelNumber:
            self.reconnect(channel)
        for _ in range(100):
            self.carry_everything()
            self.pair.now += SECOND // 10
        if self.pair.relay.state is SessionState.OPEN:
            assert self.pair.gateway.state is SessionState.OPEN
            assert self.received == self.sent
        else:
            assert self.pair.gateway.state is self.pair.relay.state is SessionState.OVER


def test_a_lossy_link(pytestconfig):
    run_state_machine_as_test(
        LossyLink,
        settings=settings(
            max_examples=1500 if pytestconfig.getoption("full") else 100,
            stateful_step_count=40,
            deadline=None,
            derandomize=True,
            database=None,
            phases=[Phase.generate, Phase.shrink],
            suppress_health_check=list(HealthCheck),
        ),
    )
