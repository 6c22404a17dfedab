"""Two sessions over simulated links: each message arrives once and in order, or both sides end."""

from __future__ import annotations

import random
from functools import partial

import pytest
from remote_link import LEASE_NS, Chances, World, exchange

from pto_transport_zmq.remote.lease import MILLISECOND, SECOND
from pto_transport_zmq.remote.session import SessionState, Side

SHORT_CUT = (10 * MILLISECOND, LEASE_NS * 3 // 4)
LONG_CUT = (10 * MILLISECOND, 3 * LEASE_NS)


@pytest.fixture
def seeds(pytestconfig: pytest.Config) -> list[int]:
    return list(range(500 if pytestconfig.getoption("full") else 25))


def chances_of(seed: int, cut_ns: tuple[int, int], drift: float = 0.0) -> Chances:
    """Choose the behaviour of a link at random; each fault may be absent."""
    choose = random.Random(seed)
    return Chances(
        duplicate=choose.choice((0, 0.05, 0.3)),
        reorder=choose.choice((0, 0.05, 0.5)),
        delay_ns=choose.choice((1, 5, 50)) * MILLISECOND,
        survive_cut=choose.choice((0, 0.2, 0.8)),
        late_ns=choose.choice((50, 1000, 8000)) * MILLISECOND,
        cuts=choose.randrange(1, 8),
        cut_ns=cut_ns,
        silent_cut=choose.choice((0, 0.5, 1)),
        drift=drift,
    )


def run(seed: int, chances: Chances, *, gap_ns: int) -> World:
    """Run an exchange with cuts; ``gap_ns`` is the time from the end of a cut to the next cut."""
    world = World(seed, chances)
    begin_ns = 0
    for _ in range(chances.cuts):
        begin_ns += world.random.randrange(300 * MILLISECOND) + gap_ns
        length_ns = world.random.randrange(*chances.cut_ns)
        is_silent = world.random.random() < chances.silent_cut
        world.at(begin_ns, partial(world.cut, length_ns, is_silent=is_silent))
        begin_ns += length_ns
    exchange(world, control=60, bulk=60, until_ns=begin_ns + 60 * SECOND)
    return world


# Invariant: If a connection is cut and restored within the lease, no message is lost or repeated.
def test_cuts_within_the_lease_lose_and_repeat_nothing(seeds):
    for seed in seeds:
        print("seed", seed)
        world = run(seed, chances_of(seed, SHORT_CUT), gap_ns=SECOND)
        world.check()
        assert [host.session.state for host in world.hosts.values()] == [SessionState.OPEN] * 2
        assert world.is_complete


def test_a_cut_as_long_as_the_lease_is_survived(seeds):
    """The link reports the cut and its end. A message travels for up to 60 ms."""
    for seed in seeds:
        print("seed", seed)
        world = World(seed, Chances(delay_ns=60 * MILLISECOND))
        sends = world.random.random() < 0.5
        cut_ns = SECOND + world.random.randrange(2 * SECOND)
        world.at(cut_ns, partial(world.cut, LEASE_NS, is_silent=False))
        if sends:
            exchange(world, control=60, bulk=60, until_ns=cut_ns)
        world.run(20 * SECOND)
        world.check()
        assert [host.session.state for host in world.hosts.values()] == [SessionState.OPEN] * 2
        assert world.is_complete


# Invariant: After a cut that is longer than the lease, both sides are over, and neither delivers
# another message.
def test_long_cuts_end_both_sides_and_nothing_is_delivered_afterwards(seeds):
    ended = 0
    for seed in seeds:
        print("seed", seed)
        world = run(seed, chances_of(seed, LONG_CUT), gap_ns=0)
        world.run(world.now + 60 * SECOND, lambda world: world.is_over)
        world.check()
        world.check_end()
        states = {host.session.state for host in world.hosts.values()}
        assert states == {SessionState.OVER} or (
            states == {SessionState.OPEN} and world.is_complete
        )
        ended += world.is_over
    assert 0 < ended < len(seeds)


# Invariant: The gateway's processes have ended before the relay reports the end of the session,
# with any delay of messages and any drift of clocks up to the bound.
def test_the_gateway_ends_before_the_relay_reports_it(seeds):
    for seed in seeds:
        print("seed", seed)
        chances = chances_of(seed, LONG_CUT, drift=0.01)
        world = World(seed, chances)
        world.confirms = False
        cut_ns = world.random.randrange(5 * SECOND)
        senders = world.random.choice((tuple(Side), (Side.RELAY,), (Side.GATEWAY,)))
        cut = partial(world.cut, 100 * SECOND, is_silent=True, senders=senders)
        world.at(cut_ns, cut)
        exchange(world, control=60, bulk=60, until_ns=cut_ns)
        world.run(100 * SECOND, lambda world: world.is_over)
        world.check()
        world.check_end()
        assert world.is_over


@pytest.mark.parametrize("is_silent", [False, True])
def test_a_cut_after_each_message_of_a_run(is_silent):
    def exchange_with(cut_at: dict[int, tuple[int, bool]]) -> World:
        world = World(5, Chances())
        world.cut_at = cut_at
        exchange(world, control=12, bulk=12, until_ns=30 * SECOND)
        return world

    messages = exchange_with({}).transmitted
    assert messages > 48
    for index in range(1, messages + 1):
        world = exchange_with({index: (300 * MILLISECOND, is_silent)})
        world.check()
        assert world.is_complete, f"cut after message {index}"
        assert all(host.session.state is SessionState.OPEN for host in world.hosts.values())


def test_a_link_that_repeats_and_reorders_everything():
    world = World(1, Chances(duplicate=1, reorder=1, delay_ns=80 * MILLISECOND))
    exchange(world, control=100, bulk=100, until_ns=60 * SECOND)
    world.check()
    assert world.is_complete


@pytest.mark.parametrize("side", Side)
def test_a_side_that_closes_ends_both(side):
    world = World(3, Chances())
    exchange(world, control=5, bulk=5, until_ns=SECOND)
    host = world.hosts[side]
    host.session.close("the program has ended", host.clock(world.now))
    other = world.hosts[side.peer]
    begin_ns = world.now
    world.run(begin_ns + 10 * SECOND, lambda world: world.is_over)
    assert world.is_over
    # the confirmation arrived, so both sides ended before the lease was over
    assert world.now - begin_ns < SECOND
    assert "the program has ended" in host.session.reason
    assert "the program has ended" in other.session.reason
    assert not other.session.outgoing(0, other.clock(world.now))
