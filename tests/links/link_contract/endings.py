"""Close ends, cut connections, kill processes, and restart listeners."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from link_contract.proxy import Proxy
from link_contract.subject import LinkSubject, World
from link_contract.traffic import same
from pto_core.errors import LinkError, UsageError
from pto_devkit.checks import ContractError, expect
from pto_devkit.transports import processes
from pto_devkit.transports.processes import apart, running
from pto_transport_zmq.link.interface import Link, Peer

_CUTS = 8
_REOPENINGS = 5
_LINGERING = 12
_GRACE_S = 2.0
_LARGE = 2 << 20  # the size of a message; a few of them exceed the system's queues


def check_close(subject: LinkSubject) -> None:
    """Require that ``close`` sends the accepted messages if ``linger_s`` allows it.

    Afterwards, a second ``close`` is allowed, and every other call raises ``LinkError``.
    """

    def body() -> None:
        with subject.world() as world:
            link, peer = world.connect()
            other, other_peer = world.connect()
            for number in range(_LINGERING):
                world.send(link, [bytes([number]), bytes(_LARGE)])
            closing = threading.Thread(target=link.close, args=(20.0,))
            closing.start()
            world.links.remove(link)
            for number in range(_LINGERING):
                same(world.receive(world.listener), [bytes([number]), bytes(_LARGE)], "a message")
            closing.join()
            link.close()
            for call in (link.receive, lambda: link.send([b"x"])):
                _expect_closed(call)
            expect(
                world.listener.send(peer, [b"x"]), "send() to a disconnected peer returned False"
            )
            world.answer(other_peer, [b"last"])
            listener, world.listener = world.listener, world.listen()
            listener.close(linger_s=5.0)
            listener.close()
            for call in (listener.receive, lambda: listener.send(peer, [b"x"])):
                _expect_closed(call)
            same(world.receive(other), [b"last"], "the message before closing")

    apart(body)


def _expect_closed(call: Callable[[], object]) -> None:
    try:
        call()
    except LinkError:
        return
    raise ContractError("a call on a closed end raises no LinkError")


def check_close_while_sending(subject: LinkSubject) -> None:
    """Require that closing one end while the other end sends disturbs neither of them."""

    def body() -> None:
        with subject.world() as world:
            stays, _ = world.connect()
            for _ in range(5):
                link, peer = world.connect()
                for _ in range(30):
                    link.send([bytes(200_000)])
                    world.listener.send(peer, [bytes(200_000)])
                    world.step(0)
                link.close()
                world.links.remove(link)
                for _ in range(30):
                    world.listener.send(peer, [bytes(200_000)])
                    world.listener.receive()
                    world.step(0)
            world.expect_exchange(stays, "after others have closed")
            listener, world.listener = world.listener, world.listen()
            for _ in range(30):
                stays.send([bytes(200_000)])
            listener.close()
            for _ in range(30):
                stays.send([bytes(200_000)])
                world.step(0.001)

    apart(body)


def check_killed_peer(subject: LinkSubject) -> None:
    """Require that a process that is killed while it sends disturbs no other peer."""

    def body() -> None:
        with subject.world() as world:
            address = world.listener.address
            server_key, keys = world.server_key, world.client_keys
            world.listener.close()
            world.close()

            def send_for_ever() -> None:
                link = subject.plugin.dial(address, keys, server_key, limits=world.limits)
                while True:
                    link.send([b"of the victim", bytes(300_000)])
                    subject.plugin.wait([link], 0.001)

            with running(send_for_ever) as victim:
                world.listener = world.listen(address)
                world.links = []
                first = world.receive(world.listener)
                victim.kill()
                victim.discard()
            for _ in range(100):
                expect(world.listener.send(first.peer, [bytes(10)]) in (True, False), "no answer")
                world.listener.receive()
                world.step(0.001)
            link = world.dial()
            world.expect_exchange(link, "after a peer was killed")

    apart(body)


def check_reconnection(subject: LinkSubject) -> None:
    """Require that a cut link connects again by itself and counts its connections.

    After each new connection, the listener sees a new peer with the same key. Messages sent between
    two cuts arrive complete and in order.
    """

    def body() -> None:
        with subject.world() as world, Proxy(world.listener.address) as proxy:
            link, peer = world.connect(proxy.address)
            other, _ = world.connect()
            for cut in range(_CUTS):
                connections = link.connections
                for number in range(cut):
                    link.send([number.to_bytes(4, "little"), bytes(30_000)])
                    world.step(0)
                proxy.cut()
                _expect_reconnected(world, link, connections)
                before, peer = peer, _new_peer(world, link, peer)
                expect(peer.key == before.key, "the key changed with the connection")
                world.expect_exchange(link, "after a cut")
            expect(
                world.listener.send(peer, [b"to the living"]),
                "send() to the new peer returned False",
            )
            same(world.receive(link), [b"to the living"], "the message to the new peer")
            world.expect_exchange(other, "beside cuts")

    apart(body)


def _expect_reconnected(world: World, link: Link, connections: int) -> None:
    """Wait until the number of connections grows; ``wait`` must report it."""
    ends = [world.listener, *world.links]
    start = time.monotonic()
    was_reported = False
    while link.connections == connections or not was_reported:
        expect(
            time.monotonic() - start < processes.LIMIT_S,
            "the link did not connect again, or wait() did not report it",
        )
        was_reported = link in world.plugin.wait(ends, 1.0).ends or was_reported
        while world.listener.receive() is not None:
            pass


def _new_peer(world: World, link: Link, before: Peer) -> Peer:
    mark = [b"the first one"]
    world.send(link, mark)
    while True:
        message = world.receive(world.listener)
        if list(map(bytes, message.parts)) == mark:
            expect(message.peer != before, "a new connection has the same Peer as the old one")
            return message.peer


def check_listener_restarts(subject: LinkSubject) -> None:
    """Require that a link finds a listener that starts later, or restarts, at its address.

    Without a listener, ``problem`` names the address; with a connection it is empty.
    """

    def body() -> None:
        with subject.world() as world:
            address = world.listener.address
            world.listener.close()
            link = world.dial(address)
            for _ in range(2):
                _expect_problem(world, link, address)
                world.listener = world.listen(address)
                world.expect_exchange(link, "after the listener started")
                expect(link.problem == "", f"a connected link has the problem {link.problem!r}")
                world.listener.close()
                connections = link.connections
            expect(
                link.connections == connections,
                "the link counted a connection to a closed listener",
            )

    apart(body)


def _expect_problem(world: World, link: Link, address: str) -> None:
    start = time.monotonic()
    while address not in link.problem:
        expect(
            time.monotonic() - start < processes.LIMIT_S,
            f"nothing listens at {address}, problem is {link.problem!r}",
        )
        world.plugin.wait([link], 0.05)


def check_addresses(subject: LinkSubject) -> None:
    """Require errors for unusable addresses, and for public addresses without keys."""

    def body() -> None:
        plugin, keys = subject.plugin, subject.key_pair()
        key = keys.public if keys else None
        for wrong in ("", "nonsense", subject.address.rpartition(":")[0], "tcp://127.0.0.1:99999"):
            _expect(UsageError, partial(plugin.listen, wrong, keys), wrong)
            _expect(UsageError, partial(plugin.dial, wrong, keys, key), wrong)
        listener = plugin.listen(subject.address, keys)
        text = _expect(LinkError, lambda: plugin.listen(listener.address, keys), "a used address")
        expect(listener.address in text, f"the error {text!r} does not name {listener.address}")
        listener.close()
        for call in (plugin.listen, plugin.dial):
            text = _expect(UsageError, partial(call, subject.open_address), "no keys")
            expect("insecure" in text, f"the error {text!r} does not name the option insecure=True")
        plugin.listen(subject.open_address, insecure=True).close()
        plugin.dial(subject.open_address.replace(":0", ":9"), insecure=True).close()

    apart(body)


def _expect(error: type[Exception], call: Callable[[], object], what: str) -> str:
    try:
        call()
    except error as raised:
        return str(raised)
    raise ContractError(f"{what!r} raises no {error.__name__}")


def check_nothing_is_left(subject: LinkSubject) -> None:
    """Require that closed ends leave no descriptor and no thread, even with messages in queues."""

    def body() -> None:
        _use_and_close(subject)
        before = _resources()
        for _ in range(_REOPENINGS):
            _use_and_close(subject)
        until = time.monotonic() + _GRACE_S
        while (after := _resources()) != before and time.monotonic() < until:
            time.sleep(0.01)  # the system lists a joined thread for a moment longer
        expect(
            after == before,
            f"{_REOPENINGS} closed links left descriptors or threads: {before} before, {after} now",
        )
        names = [thread.name for thread in threading.enumerate()]
        expect(len(names) == 1, f"Python threads are left: {names}")

    apart(body)


def _use_and_close(subject: LinkSubject) -> None:
    with subject.world() as world:
        for link, peer in [world.connect() for _ in range(3)]:
            link.send([bytes(200_000)])
            world.listener.send(peer, [bytes(200_000)])


def _resources() -> tuple[int, int]:
    return len(os.listdir("/proc/self/fd")), len(list(Path("/proc/self/task").iterdir()))
