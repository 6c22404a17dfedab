"""Send bytes that no link sends, open connections that send nothing, and exceed limits."""

from __future__ import annotations

import socket
import time
from pathlib import Path

from link_contract.subject import LIMITS, LinkSubject
from pto_devkit.checks import expect, random_numbers
from pto_devkit.transports import processes
from pto_devkit.transports.processes import apart, running
from pto_transport_zmq.link.interface import LinkLimits, split_address

_HALF_OPEN = 300
_GARBAGE = 60
_GIANT = LinkLimits(queue_messages=16, part_bytes=64 << 20)
_GROWTH_BYTES = 32 << 20


def check_garbage(subject: LinkSubject, seed: int | None = None) -> None:
    """Require that random bytes on the port produce no message and disturb no peer."""
    with random_numbers(seed) as numbers:
        texts = [numbers.randbytes(numbers.randint(1, 3000)) for _ in range(_GARBAGE)]
        texts += [b"GET / HTTP/1.1\r\n\r\n", bytes(5000), b"\xff" * 5000, subject.giant[:20]]

        def body() -> None:
            with subject.world() as world:
                link, _ = world.connect()
                strangers = [_connection(world.listener.address) for _ in texts]
                for number, (stranger, text) in enumerate(zip(strangers, texts, strict=True)):
                    stranger.send(text)
                    world.step(0)
                    if number % 2:
                        stranger.close()
                for _ in range(20):
                    world.step()
                    message = world.listener.receive()
                    expect(message is None, f"random bytes became the message {message!r:.80}")
                world.expect_exchange(link, "beside random bytes")
                world.expect_exchange(world.dial(), "after random bytes")

        apart(body)


def check_half_open_connections(subject: LinkSubject) -> None:
    """Require that hundreds of silent connections disturb no peer, old or new."""

    def body() -> None:
        with subject.world() as world:
            link, _ = world.connect()
            silent, start = [], time.monotonic()
            for number in range(_HALF_OPEN):
                silent.append(_connection(world.listener.address))
                if number % 20 == 0:
                    world.step(0)
            world.expect_exchange(link, "beside half-open connections")
            for _ in range(5):
                world.expect_exchange(world.dial(), "after half-open connections")
            passed = time.monotonic() - start
            expect(
                passed < processes.LIMIT_S,
                f"six exchanges took {passed:.1f} s while {len(silent)} connections were half open",
            )

    apart(body)


def check_giant_length(subject: LinkSubject) -> None:
    """Require that a length over the limit cuts the connection before memory is allocated."""

    def body() -> None:
        with subject.world(with_keys=False) as world:
            link, _ = world.connect()
            before = _resident_bytes()
            stranger = _connection(world.listener.address)
            stranger.settimeout(20.0)
            stranger.sendall(subject.giant)
            is_cut = []

            def was_cut() -> bool:
                stranger.setblocking(False)
                try:
                    is_cut.append(stranger.recv(4096) == b"")
                except BlockingIOError:
                    return False
                except OSError:
                    return True
                return is_cut[-1]

            world.until(was_cut, "cutting a connection with a giant length")
            grown = _resident_bytes() - before
            expect(
                grown < _GROWTH_BYTES, f"the receiver of a giant length allocated {grown >> 20} MiB"
            )
            world.expect_exchange(link, "after a giant length")

    apart(body)


def check_oversized_parts(subject: LinkSubject) -> None:
    """Require that a part over the limit is lost with its connection; later messages arrive."""

    def body() -> None:
        with subject.world() as world:
            address, keys, key = world.listener.address, world.client_keys, world.server_key
            world.close()

            def send_too_much() -> None:
                link = subject.plugin.dial(address, keys, key, limits=_GIANT)
                giant = bytes(_GIANT.part_bytes)
                sent = 0
                while sent < 3:
                    sent += link.send([b"giant", giant])
                    subject.plugin.wait([link], 0.01)
                while not link.send([b"after"]) or link.connections < 2:
                    subject.plugin.wait([link], 0.01)
                link.close(5.0)

            with running(send_too_much) as sender:
                world.listener, world.links = world.listen(address), []
                before = _resident_bytes()
                message = world.receive(world.listener)
                expect(bytes(message.parts[0]) == b"after", "a part over the limit arrived")
                grown = _resident_bytes() - before
                expect(
                    grown < _GROWTH_BYTES,
                    f"the receiver allocated {grown >> 20} MiB for parts of "
                    f"{_GIANT.part_bytes >> 20} MiB; its limit for a part is "
                    f"{LIMITS.part_bytes >> 20} MiB",
                )
                world.expect_exchange(world.dial(), "after parts over the limit")
                sender.join()

    apart(body)


def _connection(address: str) -> socket.socket:
    return socket.create_connection(split_address(address), timeout=20.0)


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096
