"""Require that ``wait`` wakes for messages and descriptors, and otherwise sleeps."""

from __future__ import annotations

import os
import threading
import time

from link_contract.subject import LinkSubject, World
from pto_devkit.checks import expect
from pto_devkit.transports import processes
from pto_devkit.transports.processes import apart

_IDLE_S = 0.3
_LATE_S = 1.0
_TRIPS = 200


def check_wait_for_descriptors(subject: LinkSubject) -> None:
    """Require that ``wait`` returns the readable descriptors, including closed ones."""

    def body() -> None:
        with subject.world() as world:
            world.connect()
            first, second = os.pipe(), os.pipe()
            ends = [world.listener, *world.links]
            _settle(world)
            ready = world.plugin.wait(ends, 0.01, [first[0], second[0]])
            expect(not ready.descriptors, "an empty pipe is reported as readable")
            os.write(second[1], b"x")
            ready = world.plugin.wait(ends, _LATE_S, [first[0], second[0]])
            expect(ready.descriptors == [second[0]], f"readable: {ready.descriptors}")
            expect(not ready.ends, "an idle end is reported together with a descriptor")
            ready = world.plugin.wait([], 0, [second[0]])
            expect(ready.descriptors == [second[0]], "a readable descriptor is not reported again")
            os.read(second[0], 1)
            os.close(first[1])
            ready = world.plugin.wait(ends, _LATE_S, [first[0], second[0]])
            expect(ready.descriptors == [first[0]], "a closed pipe is not reported")

    apart(body)


def check_wait_wakes_at_once(subject: LinkSubject) -> None:
    """Require that a write to a descriptor, or a message, ends ``wait`` at once.

    ``wait`` reports an end that has a message until the message is received.
    """

    def body() -> None:
        with subject.world() as world:
            link, peer = world.connect()
            _settle(world)
            read, write = os.pipe()
            timer = threading.Timer(0.1, os.write, (write, b"x"))
            timer.start()
            start = time.monotonic()
            ready = world.plugin.wait([world.listener, link], 10 * _LATE_S, [read])
            expect(ready.descriptors == [read], "wait does not return the readable descriptor")
            expect(time.monotonic() - start < 5 * _LATE_S, "wait returned too late")
            timer.join()
            world.answer(peer, [b"a message"])
            start = time.monotonic()
            while link not in world.plugin.wait([world.listener, link], 10 * _LATE_S).ends:
                expect(time.monotonic() - start < 5 * _LATE_S, "a message did not end wait")
            ready = world.plugin.wait([world.listener, link], 0)
            expect(link in ready.ends, "an end with a message is reported only once")
            _expect_trips(world)
            _expect_connection(world)

    apart(body)


def _expect_connection(world: World) -> None:
    """Require that ``wait`` and ``send`` alone connect to a listener that starts after ``dial``."""
    link = world.dial(address := _unused_address(world))
    for _ in range(10):
        world.plugin.wait([link], 0.01)
    listener = world.listen(address)
    start = time.monotonic()
    while not link.send([b"connected"]):
        expect(time.monotonic() - start < 5 * _LATE_S, "wait alone does not make a connection")
        world.plugin.wait([listener, link], _LATE_S)
    listener.close()


def _expect_trips(world: World) -> None:
    """Exchange many messages one by one; require that none of them waits for a time limit."""
    link, peer = world.links[0], world.receive(world.links[0]).peer
    peer = world.introduce(link)
    start = time.monotonic()
    for number in range(_TRIPS):
        world.send(link, [number.to_bytes(4, "little")])
        while world.listener.receive() is None:
            world.plugin.wait([world.listener, link], 10 * _LATE_S)
        world.answer(peer, [b"answer"])
        while link.receive() is None:
            world.plugin.wait([world.listener, link], 10 * _LATE_S)
    passed = time.monotonic() - start
    expect(passed < 10 * _LATE_S, f"{_TRIPS} round trips took {passed:.1f} s")


def check_wait_sleeps(subject: LinkSubject) -> None:
    """Require that idle ends sleep for the whole wait, and use almost no processor time."""

    def body() -> None:
        with subject.world() as world:
            world.connect()
            world.connect()
            _settle(world)
            start, used, returns = time.monotonic(), time.process_time(), 0
            while (rest_s := start + _IDLE_S - time.monotonic()) > 0:
                world.plugin.wait([world.listener, *world.links], rest_s)
                returns += 1
            used = time.process_time() - used
            expect(returns <= 10, f"wait returned {returns} times in {_IDLE_S} s without an event")
            expect(used < _IDLE_S / 3, f"waiting for {_IDLE_S} s used {used:.2f} s of a processor")
            start = time.monotonic()
            world.plugin.wait([world.listener, *world.links], 0)
            expect(time.monotonic() - start < _LATE_S, "wait with 0 s does not return at once")

    apart(body)


def check_idle_calls_return(subject: LinkSubject) -> None:
    """Require that ``send`` and ``receive`` never block, even with full queues."""

    def body() -> None:
        with subject.world() as world:
            link, peer = world.connect()
            absent = world.dial(_unused_address(world))
            for _ in range(500):
                expect(world.listener.receive() is None, "a message arrived that was never sent")
                expect(link.receive() is None, "a message arrived that was never sent")
                expect(absent.receive() is None, "a message arrived that was never sent")
                expect(not absent.send([b"x"]), "a link without a connection accepts messages")
            for _ in range(500):
                link.send([bytes(100_000)])
                world.listener.send(peer, [bytes(100_000)])

    apart(body, limit_s=processes.LIMIT_S)


def _unused_address(world: World) -> str:
    listener = world.listen()
    listener.close()
    return listener.address


def _settle(world: World) -> None:
    """Call ``wait`` until the ends have completed the pending work of their connections."""
    until = time.monotonic() + 0.2
    while time.monotonic() < until:
        world.step()
