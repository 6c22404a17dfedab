"""Require that messages arrive once, complete and in order, even through full queues."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence

from link_contract.subject import LIMITS, LinkSubject, World
from pto_core.errors import UsageError
from pto_devkit.checks import ContractError, expect, random_numbers
from pto_devkit.transports import processes
from pto_devkit.transports.processes import apart
from pto_transport_zmq.link.interface import (
    PARTS_LIMIT,
    Buffer,
    Link,
    LinkLimits,
    LinkMessage,
)

_MESSAGES = 400
_PEERS = 20
_FAIR = 200  # more than 1, because the message of the other peer may arrive late
_QUEUE = LinkLimits(queue_messages=4, part_bytes=1 << 20)
_SYSTEM_QUEUE_BYTES = 24 << 20
"""The bytes that the system may buffer outside the queues of both ends: the socket buffers."""


def same(message: LinkMessage, sent: Sequence[Buffer], what: str) -> None:
    """Raise unless ``message`` has the parts that were sent."""
    sizes = [len(part) for part in message.parts]
    wanted = [len(part) for part in sent]
    expect(sizes == wanted, f"{what} arrived with parts of {sizes} bytes instead of {wanted}")
    for number, (part, original) in enumerate(zip(message.parts, sent, strict=True)):
        expect(bytes(part) == bytes(original), f"part {number} of {what} arrived with other bytes")


def check_messages_arrive_whole(subject: LinkSubject) -> None:
    """Require that parts of all sizes arrive with their boundaries and bytes, both ways."""

    def body() -> None:
        numbers = random.Random(1)
        sizes = [0, 1, 255, 256, 8191, 8192, 65535, 65536, 65537, 1 << 20, LIMITS.part_bytes]
        messages: list[list[Buffer]] = [[numbers.randbytes(size)] for size in sizes]
        messages += [[b"", b""], [b"head", numbers.randbytes(1 << 20)], [b""] * PARTS_LIMIT]
        messages += [[numbers.randbytes(300), b"", numbers.randbytes(70_000), b"tail"]]
        messages += [[bytearray(b"ab"), memoryview(numbers.randbytes(1 << 20))[17:]]]
        with subject.world() as world:
            link, peer = world.connect()
            for parts in messages:
                world.send(link, parts)
                got = world.receive(world.listener)
                expect(got.peer == peer, f"a message has the peer {got.peer}, expected {peer}")
                same(got, parts, "a message to the listener")
                world.answer(peer, parts)
                same(world.receive(link), parts, "a message to the link")

    apart(body)


def check_messages_in_order(subject: LinkSubject, seed: int | None = None) -> None:
    """Require that random messages in batches, in both directions, arrive once and in order."""
    with random_numbers(seed) as numbers:
        chosen = numbers.getrandbits(32)

        def body() -> None:
            with subject.world() as world:
                link, peer = world.connect()
                streams = [
                    Stream(link.send, lambda: world.listener.receive(), chosen),
                    Stream(lambda parts: world.listener.send(peer, parts), link.receive, ~chosen),
                ]
                world.until(
                    lambda: [stream.is_over() for stream in streams] == [True, True],
                    f"sending {_MESSAGES} messages in each direction",
                )
                world.step(0.05)
                expect(world.listener.receive() is None, "a message arrived twice")
                expect(link.receive() is None, "a message arrived twice")

        apart(body)


class Stream:
    """Sends random messages in one direction, as many as the queue accepts, and checks them."""

    def __init__(
        self,
        send: Callable[[Sequence[Buffer]], bool],
        receive: Callable[[], LinkMessage | None],
        seed: int,
    ) -> None:
        self._send, self._receive, self._seed = send, receive, seed
        self.sent = self.received = 0

    def is_over(self) -> bool:
        """Send and receive as much as possible now; return whether everything has arrived."""
        while self.sent < _MESSAGES and self._send(self.message(self.sent)):
            self.sent += 1
        while (got := self._receive()) is not None:
            same(got, self.message(self.received), f"message {self.received}")
            self.received += 1
        return self.received >= _MESSAGES

    def message(self, number: int) -> list[Buffer]:
        """Return a message that depends only on its number."""
        numbers = random.Random(self._seed * 1000 + number)
        sizes = [numbers.choice((0, 3, 40, 900, 70_000)) for _ in range(numbers.randint(1, 3))]
        return [number.to_bytes(4, "little"), *(numbers.randbytes(size) for size in sizes)]


def check_full_queue(subject: LinkSubject) -> None:
    """Require that a queue accepts a limited number of messages and loses none.

    When the other side has received messages, ``wait`` reports the sender, and ``send`` succeeds.
    """

    def body() -> None:
        with subject.world(_QUEUE) as world:
            link, peer = world.connect()
            _fill_and_drain(world, link, link.send, world.listener.receive)
            _fill_and_drain(
                world,
                world.listener,
                lambda parts: world.listener.send(peer, parts),
                link.receive,
            )
            world.expect_exchange(link, "after full queues")

    apart(body)


def _fill_and_drain(
    world: World,
    sender: object,
    send: Callable[[Sequence[Buffer]], bool],
    receive: Callable[[], LinkMessage | None],
) -> None:
    bulk = bytes(_QUEUE.part_bytes)
    limit = 2 * _QUEUE.queue_messages + _SYSTEM_QUEUE_BYTES // len(bulk)
    sent, refused_since = 0, time.monotonic()
    while time.monotonic() - refused_since < 0.5:
        if send([sent.to_bytes(4, "little"), bulk]):
            sent, refused_since = sent + 1, time.monotonic()
            expect(sent <= limit, f"{sent} MiB were accepted, and the other side received nothing")
        world.step()
    expect(sent >= _QUEUE.queue_messages, f"the queue was full after {sent} messages")
    expect(not send([b"one", bulk]), "a full queue accepted a message")
    received = 0
    was_reported = False
    start = time.monotonic()
    while received < sent or not was_reported:
        expect(
            time.monotonic() - start < processes.LIMIT_S,
            f"{received} of {sent} arrived; reported: {was_reported} that the sender may continue",
        )
        message = receive()
        if message is not None:
            same(message, [received.to_bytes(4, "little"), bulk], f"message {received}")
            received += 1
        ready = world.plugin.wait([world.listener, *world.links], 0.005)
        was_reported = was_reported or (sender in ready.ends and received < sent)
    world.until(lambda: send([b"last"]), "sending after the other side has received everything")
    got: list[LinkMessage] = []

    def has_last() -> bool:
        message = receive()
        got.extend([message] if message is not None else [])
        return bool(got)

    world.until(has_last, "receiving the last message")
    same(got[0], [b"last"], "the last message")


def check_refused_messages(subject: LinkSubject) -> None:
    """Require a ``UsageError`` for no parts, too many parts, and a part over the sender's limit."""

    def body() -> None:
        with subject.world(_QUEUE) as world:
            link, peer = world.connect()
            for parts in ([], [b"x"] * (PARTS_LIMIT + 1), [b"head", bytes(_QUEUE.part_bytes + 1)]):
                for send in (link.send, lambda parts: world.listener.send(peer, parts)):
                    try:
                        send(parts)
                    except UsageError:
                        continue
                    raise ContractError(
                        f"a message of {len(parts)} parts over a limit raised no error"
                    )
            world.expect_exchange(link, "after refused messages")

    apart(body)


def check_peers_are_apart(subject: LinkSubject) -> None:
    """Require that each of many peers has its own ``Peer``, and receives only its own messages."""

    def body() -> None:
        with subject.world() as world:
            pairs = [world.connect() for _ in range(_PEERS)]
            expect(len({peer for _, peer in pairs}) == _PEERS, "two connections have the same Peer")
            for number, (link, _) in enumerate(pairs):
                world.send(link, [b"from", bytes([number])])
            for _ in pairs:
                message = world.receive(world.listener)
                number = bytes(message.parts[1])[0]
                expect(
                    message.peer == pairs[number][1], f"a message of peer {number} has another Peer"
                )
            for number, (_, peer) in enumerate(pairs):
                world.answer(peer, [b"to", bytes([number])])
            for number, (link, _) in enumerate(pairs):
                same(world.receive(link), [b"to", bytes([number])], f"the answer to {number}")

    apart(body)


def check_peers_do_not_stop_each_other(subject: LinkSubject) -> None:
    """Require that a peer that does not receive, or sends without end, does not block other peers.

    The listener's queue for the peer that does not receive becomes full; another peer still gets
    answers.
    """

    def body() -> None:
        with subject.world(_QUEUE) as world:
            quiet, quiet_peer = world.connect()
            loud, _ = world.connect()
            other, other_peer = world.connect()
            world.links.remove(quiet)  # from here on it neither sends nor receives
            bulk = bytes(_QUEUE.part_bytes)
            for number in range(20):
                # The system's buffers grow, so the queue may have space again: fill it each time.
                world.until(
                    lambda: not world.listener.send(quiet_peer, [bulk]), "filling a peer's queue"
                )
                world.answer(other_peer, [bytes([number])])
                same(
                    world.receive(other), [bytes([number])], "an answer while another queue is full"
                )
            _expect_share(world, loud, other)
            quiet.close()

    apart(body)


def _expect_share(world: World, loud: Link, other: Link) -> None:
    """Let one peer send as much as it can; require that a message of another peer arrives soon."""
    queued = 4 * _QUEUE.queue_messages
    for turn in range(5):
        for _ in range(queued):
            loud.send([b"loud"])
            world.step(0)
        world.send(other, [b"other"])
        for _ in range(20):
            world.step(0.002)
        before = 0
        while bytes(world.receive(world.listener).parts[0]) != b"other":
            before += 1
            loud.send([b"loud"])
            expect(
                before < _FAIR, f"turn {turn}: a message arrived after {before} of the loud peer"
            )
