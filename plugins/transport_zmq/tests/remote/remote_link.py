"""Two sessions over a simulated link that cuts, delays, repeats, reorders and loses messages.

Time is simulated. Each host has its own clock with an offset and a drift. One random generator
makes all choices, so a seed repeats a run exactly.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import count

from pto_transport_zmq.remote.lease import ENDING_NS, MILLISECOND, SECOND
from pto_transport_zmq.remote.session import (
    BULK,
    CONTROL,
    Identity,
    RemoteSession,
    SessionState,
    Side,
)
from pto_transport_zmq.remote.wire import ChannelNumber, Message

SESSION = bytes(range(16))
KIND = 100
LEASE_NS = 3 * SECOND
IDENTITY = Identity("1.0", LEASE_NS, 4096, "little")
Wire = list[bytes]


@dataclass
class Chances:
    """The behaviour of the link. A probability applies to one message or to one cut."""

    duplicate: float = 0.0
    reorder: float = 0.0
    delay_ns: int = 2 * MILLISECOND
    survive_cut: float = 0.0
    """The probability that a message in flight at a cut still arrives, up to ``late_ns`` later."""
    late_ns: int = 200 * MILLISECOND
    cuts: int = 0
    cut_ns: tuple[int, int] = (10 * MILLISECOND, 1500 * MILLISECOND)
    silent_cut: float = 0.0
    """The probability that neither side notices a cut."""
    drift: float = 0.0
    """The bound on the drift of the clocks, as a fraction."""


@dataclass
class Host:
    """One side: its session, its clock, and the messages of its upper layers."""

    session: RemoteSession
    rate: float
    offset_ns: int
    sent: dict[ChannelNumber, list[bytes]] = field(default_factory=lambda: {CONTROL: [], BULK: []})
    received: dict[ChannelNumber, list[bytes]] = field(
        default_factory=lambda: {CONTROL: [], BULK: []}
    )
    after: list[int] = field(default_factory=list)
    """For each sent control message: the number of bulk messages that it waits for."""
    received_after: list[int] = field(default_factory=list)
    """For each received control message: the number of bulk messages before it."""
    over_at_ns: int | None = None
    most_kept: int = 0

    def clock(self, real_ns: int) -> int:
        return self.offset_ns + int(real_ns * self.rate)

    def real(self, clock_ns: int) -> int:
        return int((clock_ns - self.offset_ns) / self.rate) + 1


class World:
    """Both hosts, the link between them, and the events of a run in order of real time."""

    def __init__(self, seed: int, chances: Chances, lease_ns: int = LEASE_NS) -> None:
        self.random = random.Random(seed)
        self.chances = chances
        self.now = 0
        self._blocked: set[Side] = set()  # the sides whose messages are lost now
        self.transmitted = 0
        self.cut_at: dict[int, tuple[int, bool]] = {}
        """Cuts (length, whether silent) by the number of the message after which they happen."""
        self.ended_at_ns: int | None = None
        """The time at which the gateway's processes ended."""
        self.confirms = True
        """Whether the gateway reports that its processes have ended."""
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._order = count()
        self._connection = dict.fromkeys(Side, 0)
        self._arrival: dict[tuple[Side, int], int] = {}
        identity = Identity("1.0", lease_ns, 4096, "little")
        self.hosts: dict[Side, Host] = {}
        for side in Side:
            rate = 1 + chances.drift * self.random.uniform(-1, 1)
            offset_ns = self.random.randrange(1, 1000) * SECOND
            session = RemoteSession(side, identity, SESSION, 1, offset_ns)
            self.hosts[side] = Host(session, rate, offset_ns)
        self._wakes: dict[Side, int] = {}
        self.at(0, self._connect)

    def at(self, delay_ns: int, act: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.now + delay_ns, next(self._order), act))

    def run(self, until_ns: int, is_done: Callable[[World], bool] = lambda world: False) -> None:
        """Handle events up to a time, or until ``is_done``."""
        for side in Side:
            self._pump(side)
        while self._events and self._events[0][0] <= until_ns and not is_done(self):
            self.now, _, act = heapq.heappop(self._events)
            act()
        if not is_done(self):
            self.now = max(self.now, until_ns)

    def send(self, side: Side, channel: ChannelNumber, body: bytes) -> bool:
        """Send a message of the upper layers; return whether there was space."""
        host = self.hosts[side]
        if channel == BULK:
            sequence = host.session.send_bulk(KIND, [body[:2], body[2:]])
        else:
            after = host.session.bulk.outbox.last_sequence if self.random.random() < 0.5 else 0
            sequence = host.session.send(KIND, [body], after)
            if sequence is not None:
                host.after.append(after)
        if sequence is None:
            return False
        host.sent[channel].append(body)
        assert sequence == len(host.sent[channel])
        self._pump(side)
        return True

    def cut(
        self, length_ns: int, *, is_silent: bool, senders: tuple[Side, ...] = tuple(Side)
    ) -> None:
        """Drop the messages in flight from ``senders``, and restore the link after a time."""
        if self._blocked:
            return
        self._blocked = set(senders)
        for side in senders:
            self._connection[side] += 1
        self.at(length_ns, lambda: self._restore(is_silent=is_silent))

    @property
    def is_complete(self) -> bool:
        """Whether all sent messages were received."""
        relay, gateway = self.hosts[Side.RELAY], self.hosts[Side.GATEWAY]
        return all(
            len(one.sent[channel]) == len(other.received[channel])
            for one, other in ((relay, gateway), (gateway, relay))
            for channel in ChannelNumber
        )

    @property
    def is_over(self) -> bool:
        return all(host.over_at_ns is not None for host in self.hosts.values())

    def check(self) -> None:
        """Require that the received messages are a prefix of the sent ones."""
        for side, host in self.hosts.items():
            other = self.hosts[side.peer]
            for channel in ChannelNumber:
                received = host.received[channel]
                assert received == other.sent[channel][: len(received)], (side, channel)
            needed = other.after[: len(host.received_after)]
            assert all(
                had >= need for had, need in zip(host.received_after, needed, strict=True)
            ), f"{side}: a control message overtook a bulk message"

    def check_end(self) -> None:
        """Require that the gateway's processes ended before the relay reported the end."""
        relay, gateway = self.hosts[Side.RELAY], self.hosts[Side.GATEWAY]
        if relay.over_at_ns is not None and relay.session.peer is not None:
            assert gateway.over_at_ns is not None, "the relay was over before the gateway"
            assert self.ended_at_ns is not None, "the gateway's processes still run"
            assert self.ended_at_ns <= relay.over_at_ns, "the gateway's processes ended too late"

    def _connect(self) -> None:
        for side, host in self.hosts.items():
            for channel in ChannelNumber:
                host.session.reconnected(channel, host.clock(self.now))
            self._pump(side)

    def _restore(self, *, is_silent: bool) -> None:
        self._blocked = set()
        if not is_silent:
            self._connect()

    def _pump(self, side: Side) -> None:
        """Transmit the pending messages of a side, and schedule its next wake-up."""
        host = self.hosts[side]
        now = host.clock(self.now)
        for channel in ChannelNumber:
            while messages := host.session.outgoing(channel, now, self.random.choice((1, 3, 64))):
                for message in messages:
                    self._transmit(side, channel, [bytes(part) for part in message])
        outboxes = (host.session.control.outbox, host.session.bulk.outbox)
        host.most_kept = max(host.most_kept, sum(each.kept_bytes for each in outboxes))
        if host.session.state is SessionState.OVER and host.over_at_ns is None:
            host.over_at_ns = self.now
            if side is Side.GATEWAY:
                self.at(self.random.randrange(ENDING_NS + 1), self._end_processes)
        deadline = host.session.deadline_ns
        if deadline is not None and self._wakes.get(side) != deadline:
            self._wakes[side] = deadline
            self.at(max(0, host.real(deadline) - self.now), lambda: self._pump(side))

    def _end_processes(self) -> None:
        self.ended_at_ns = self.now
        if not self.confirms:
            return
        host = self.hosts[Side.GATEWAY]
        host.session.confirm_end(host.clock(self.now))
        self._pump(Side.GATEWAY)

    def _transmit(self, side: Side, channel: ChannelNumber, message: Wire) -> None:
        self.transmitted += 1
        if self.transmitted in self.cut_at:
            length_ns, is_silent = self.cut_at[self.transmitted]
            self.at(0, lambda: self.cut(length_ns, is_silent=is_silent))
        chances = self.chances
        if side in self._blocked:
            return
        for _ in range(2 if self.random.random() < chances.duplicate else 1):
            delay_ns = self.random.randrange(1, chances.delay_ns)
            if self.random.random() < chances.reorder:
                arrival = self.now + delay_ns
            else:
                arrival = max(self.now + delay_ns, self._arrival.get((side, channel), 0) + 1)
                self._arrival[side, channel] = arrival
            connection = self._connection[side]
            arrive = partial(self._arrive, side.peer, channel, message, connection)
            self.at(arrival - self.now, arrive)

    def _arrive(self, side: Side, channel: ChannelNumber, message: Wire, connection: int) -> None:
        if connection == self._connection[side.peer]:
            self._deliver(side, channel, message)
        elif self.random.random() < self.chances.survive_cut:
            delay_ns = self.random.randrange(self.chances.late_ns)
            self.at(delay_ns, lambda: self._deliver(side, channel, message))

    def _deliver(self, side: Side, channel: ChannelNumber, message: Wire) -> None:
        host = self.hosts[side]
        is_over = host.over_at_ns is not None
        for delivered in host.session.received(channel, message, host.clock(self.now)):
            assert not is_over, f"{side} delivered a message after its end"
            assert delivered.kind == KIND
            number = ChannelNumber(delivered.channel)
            host.received[number].append(b"".join(delivered.body))
            assert delivered.sequence == len(host.received[number])
            if number == BULK:
                host.session.consumed(1)
            else:
                host.received_after.append(len(host.received[BULK]))
        self._pump(side)


def exchange(world: World, control: int, bulk: int, until_ns: int) -> None:
    """Send messages in both directions at random times, then run until they have arrived."""
    left = {
        (side, channel): number
        for side in Side
        for channel, number in ((CONTROL, control), (BULK, bulk))
        if number
    }
    while left and world.now < until_ns and not world.is_over:
        side, channel = world.random.choice(list(left))
        number = len(world.hosts[side].sent[channel])
        body = f"{side.name} {channel.name} {number}".encode()
        if world.send(side, channel, body):
            left[side, channel] -= 1
            if not left[side, channel]:
                del left[side, channel]
        world.run(world.now + world.random.randrange(5 * MILLISECOND))
    world.run(until_ns, lambda world: world.is_complete or world.is_over)


class Pair:
    """Two sessions with one clock; :meth:`exchange` carries all messages at once."""

    def __init__(
        self, relay: Identity = IDENTITY, gateway: Identity = IDENTITY, now: int = SECOND
    ) -> None:
        self.now = now
        self.relay = RemoteSession(Side.RELAY, relay, SESSION, 1, now)
        self.gateway = RemoteSession(Side.GATEWAY, gateway, SESSION, 1, now)

    def open(self) -> Pair:
        """Exchange greetings."""
        for channel in ChannelNumber:
            self.relay.reconnected(channel, self.now)
        self.exchange()
        assert self.relay.state is SessionState.OPEN
        assert self.gateway.state is SessionState.OPEN
        return self

    def exchange(self) -> tuple[list[Message], list[Message]]:
        """Carry messages until none is left; return those delivered to relay and gateway."""
        delivered: tuple[list[Message], list[Message]] = ([], [])
        is_moving = True
        while is_moving:
            is_moving = False
            for channel in ChannelNumber:
                for source, target, place in (
                    (self.relay, self.gateway, 1),
                    (self.gateway, self.relay, 0),
                ):
                    for message in source.outgoing(channel, self.now):
                        is_moving = True
                        delivered[place].extend(target.received(channel, message, self.now))
        return delivered

    def wait(self, time_ns: int) -> tuple[list[Message], list[Message]]:
        """Let time pass in small steps with an exchange after each."""
        delivered: tuple[list[Message], list[Message]] = ([], [])
        end_ns = self.now + time_ns
        while self.now < end_ns:
            self.now = min(end_ns, self.now + 50 * MILLISECOND)
            for place, messages in enumerate(self.exchange()):
                delivered[place].extend(messages)
        return delivered
