"""Require that only the right keys connect, and that the traffic is encrypted."""

from __future__ import annotations

from functools import partial

from link_contract.proxy import Proxy
from link_contract.subject import LinkSubject, World
from pto_core.errors import UnsupportedError, UsageError
from pto_devkit.checks import ContractError, expect
from pto_devkit.transports.processes import apart
from pto_transport_zmq.link.interface import KeyPair, Link

_SILENCE_S = 0.6
_FORGED = "a client with the public key of another"


def check_without_keys(subject: LinkSubject) -> None:
    """Require that a link without ``peer_keys`` refuses keys, and that its peers have no keys."""

    def body() -> None:
        plugin, keys = subject.plugin, KeyPair("public", "secret")
        for call in (
            plugin.key_pair,
            lambda: plugin.listen(subject.address, keys, ["public"]),
            lambda: plugin.dial(subject.address, keys, "public"),
        ):
            try:
                call()
            except UnsupportedError:
                continue
            raise ContractError("a link without keys accepts keys")
        with subject.world() as world:
            _, peer = world.connect()
            expect(peer.key is None, f"a peer without keys has the key {peer.key!r}")

    apart(body)


def check_key_pairs(subject: LinkSubject) -> None:
    """Require that all keys are different plain texts, and that ``repr`` hides the secret key."""
    pairs = [subject.plugin.key_pair() for _ in range(20)]
    texts = {text for pair in pairs for text in (pair.public, pair.secret)}
    expect(len(texts) == 40, "two keys are equal")
    for pair in pairs:
        is_plain = pair.public.isascii() and pair.public.isprintable()
        expect(is_plain, "a public key is not plain text")
        expect(pair.secret not in repr(pair), "repr() of a key pair shows the secret key")


def check_peer_keys(subject: LinkSubject) -> None:
    """Require that a message has its sender's key, and ``link.peer`` the listener's key."""

    def body() -> None:
        with subject.world() as world:
            other = subject.plugin.key_pair()
            world.listener.allow([str(world.client_key), other.public])
            for keys in (world.client_keys, other, world.client_keys):
                link, peer = world.connect(credentials=keys)
                expect(
                    keys is not None and peer.key == keys.public,
                    f"the listener reports the peer key {peer.key}",
                )
                expect(
                    link.peer.key == world.server_key,
                    f"the link reports the listener key {link.peer.key}",
                )
                world.answer(peer, [b"x"])
                expect(
                    world.receive(link).peer.key == world.server_key,
                    "an answer does not have the listener's key",
                )

    apart(body)


def check_wrong_keys(subject: LinkSubject) -> None:
    """Require that no message passes with a wrong key, with an unknown key, or without a key.

    The link reports a ``problem``, and other peers are not disturbed.
    """

    def body() -> None:
        with subject.world() as world:
            right, _ = world.connect()
            other = subject.plugin.key_pair()
            forged = KeyPair(str(world.client_key), other.secret)
            for what, changes in (
                ("another server key", {"server_key": other.public}),
                ("a client key that is not allowed", {"credentials": other}),
                (_FORGED, {"credentials": forged}),
                ("a client without keys", {"credentials": None, "server_key": None}),
            ):
                try:
                    wrong = world.dial(**changes)
                except UsageError:
                    expect(
                        what == _FORGED, f"{what}: dial() refused it; the listener must refuse it"
                    )
                    continue
                world.expect_silence(wrong, _SILENCE_S, what)
                world.until(partial(_has_problem, wrong), f"{what}: waiting for link.problem")
                wrong.close()
                world.links.remove(wrong)
            world.expect_exchange(right, "beside wrong keys")
        _check_listener_without_keys(subject)
        _check_incomplete_keys(subject)

    apart(body)


def _has_problem(link: Link) -> bool:
    return bool(link.problem)


def _check_listener_without_keys(subject: LinkSubject) -> None:
    """Require that a link with keys does not connect to a listener without keys (a downgrade)."""
    with subject.world(with_keys=False) as world:
        keys, server = subject.plugin.key_pair(), subject.plugin.key_pair()
        link = world.dial(credentials=keys, server_key=server.public)
        world.expect_silence(link, _SILENCE_S, "a listener without keys")
        _, peer = world.connect(credentials=None, server_key=None)
        expect(peer.key is None, f"a peer without keys has the key {peer.key!r}")


def _check_incomplete_keys(subject: LinkSubject) -> None:
    """Require an error at the call if only one key is passed, or if a text is not a key."""
    plugin, keys = subject.plugin, subject.plugin.key_pair()
    address = subject.address.replace(":0", ":9")
    for call in (
        lambda: plugin.dial(address, keys, None),
        lambda: plugin.dial(address, None, keys.public),
        lambda: plugin.dial(address, keys, "no key"),
        lambda: plugin.dial(address, KeyPair("no", "key"), keys.public),
        lambda: plugin.listen(subject.address, KeyPair("no", "key")),
        lambda: plugin.listen(subject.address, KeyPair(keys.public, plugin.key_pair().secret)),
        lambda: plugin.listen(subject.address, keys, ["no key"]),
        lambda: plugin.listen(subject.address, None, [keys.public]),
    ):
        try:
            call().close()
        except UsageError as error:
            expect(keys.secret not in str(error), "a message shows a secret key")
            continue
        raise ContractError("invalid keys raise no UsageError")


def check_allowed_keys_change(subject: LinkSubject) -> None:
    """Require that ``allow`` admits a new key, and cuts off a removed key, at once."""

    def body() -> None:
        with subject.world() as world:
            first, _ = world.connect()
            late = subject.plugin.key_pair()
            second = world.dial(credentials=late)
            world.expect_silence(second, _SILENCE_S, "a key that is not allowed yet")
            world.listener.allow([str(world.client_key), late.public])
            world.expect_exchange(second, "after the key was allowed")
            world.listener.allow([late.public])
            _expect_silenced(world, first)
            world.expect_exchange(second, "after another key was removed")
            world.listener.allow([str(world.client_key), late.public])
            world.expect_exchange(first, "after the key was allowed again")

    apart(body)


def _expect_silenced(world: World, link: Link) -> None:
    for _ in range(20):
        link.send([b"removed"])
        world.step(0.02)
        message = world.listener.receive()
        expect(message is None, "a message of a removed key arrived")


def check_traffic_is_encrypted(subject: LinkSubject) -> None:
    """Require that the transmitted bytes contain no part in plain text and no secret key."""

    def body() -> None:
        with subject.world() as world:
            secret = b"A plain text that a listener on the way must not read. "
            with Proxy(world.listener.address, record_bytes=1 << 20) as proxy:
                link, peer = world.connect(proxy.address)
                for copies in (1, 2000):
                    world.send(link, [b"head", secret * copies])
                    world.receive(world.listener)
                    world.answer(peer, [secret * copies])
                    world.receive(link)
                seen = bytes(proxy.recorded)
            expect(len(seen) > 100_000, f"the proxy forwarded only {len(seen)} bytes")
            for text in (secret[:16], b"head" + secret[:4]):
                expect(text not in seen, "the forwarded bytes contain a plain text")
            for pair in (world.client_keys, world.server_keys):
                expect(
                    pair and pair.secret.encode() not in seen,
                    "the forwarded bytes contain a secret key",
                )

    apart(body)
