"""Properties of this link beyond the contract: forks, threads, messages, refused keys."""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from link_contract import LinkSubject, World

from pto_core.errors import LinkError, UsageError
from pto_transport_zmq import plugin as transport
from pto_transport_zmq.link.interface import KeyPair, LinkLimits
from pto_transport_zmq.link.loading import load_links

WAIT_S = 30.0
links = transport.links
SUBJECT = LinkSubject(links, "tcp://127.0.0.1:0", "tcp://0.0.0.0:0", b"")


@contextmanager
def world(limits: LinkLimits | None = None) -> Iterator[World]:
    with SUBJECT.world(*([limits] if limits else [])) as made:
        yield made


def in_a_fork(body: Callable[[], str]) -> str:
    """Return the result of ``body`` in a forked child."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(write, body().encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        text = pipe.read()
    os.waitpid(pid, 0)
    return text


def failure(call: Callable[[], object]) -> str:
    try:
        call()
    except LinkError as error:
        return str(error)
    return "no error"


def test_the_link_is_found_by_its_name() -> None:
    assert load_links("zmq") is links
    assert links.health().ok


# Invariant: No socket of ZeroMQ is used in a process other than the one that opened it.
def test_a_fork_uses_and_opens_no_link() -> None:
    with world() as made:
        link, peer = made.connect()

        def use() -> str:
            calls: list[Callable[[], object]] = [
                link.receive,
                lambda: made.listener.send(peer, [b"x"]),
                lambda: links.wait([link], 0),
                lambda: links.listen("tcp://127.0.0.1:0"),
            ]
            texts = [failure(call) for call in calls]
            link.close()
            return "\n".join(texts)

        *used, opened = in_a_fork(use).splitlines()
        assert len(used) == 3
        for text in used:
            assert "belongs to the process from which this one was forked" in text
        assert "ZeroMQ does not survive a fork; start this process with spawn" in opened
        made.expect_exchange(link, "after a fork")


def test_a_process_may_fork_before_and_after_it_uses_links() -> None:
    with world() as made:
        made.connect()

    def exchange() -> str:
        with world() as inner:
            inner.expect_exchange(inner.dial(), "in a fork")
        return "exchanged"

    assert in_a_fork(exchange) == "exchanged"


def test_messages_without_copies_leave_no_thread() -> None:
    before = threading.enumerate()
    with world() as made:
        link, _ = made.connect()
        made.send(link, [bytes(1 << 20)])
        assert threading.enumerate() != before
        made.receive(made.listener)
    assert threading.enumerate() == before


def test_a_message_that_arrives_before_a_send_is_received_after_it() -> None:
    """The send processes the report of the message, so the descriptor reports it no more."""
    with world() as made:
        link, peer = made.connect()
        for number in range(20):
            assert link.receive() is None
            made.answer(peer, [bytes([number])])
            assert select.select([link.descriptor], [], [], WAIT_S)[0]
            assert link.send([b"meanwhile"])
            message = made.receive(link)
            assert bytes(message.parts[0]) == bytes([number])
            made.receive(made.listener)


def test_a_large_part_is_not_copied_twice() -> None:
    with world() as made:
        link, _ = made.connect()
        made.send(link, [b"head", bytes(1 << 20)])
        head, part = made.receive(made.listener).parts
    assert isinstance(head, bytes)
    assert isinstance(part, memoryview)
    place = bytearray(1 << 20)
    place[:] = part  # the received view stays valid after its link is closed
    assert place == bytes(1 << 20)


def test_an_address_in_use_is_named_in_the_error() -> None:
    with world() as made:
        with pytest.raises(LinkError, match="choose a free port") as caught:
            links.listen(made.listener.address, made.server_keys)
        assert caught.value.address == made.listener.address
        assert made.listener.address in str(caught.value)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"server_key": None}, "server_key is missing; a link needs credentials and server_key"),
        ({"server_key": "short"}, "server_key is not a CURVE key: 'short'; expected 40 characters"),
        ({"credentials": KeyPair("a" * 40, "b" * 39)}, "secret key is not a CURVE key: text of 39"),
    ],
)
def test_wrong_keys_are_named(change: dict[str, object], words: str) -> None:
    keys, server = links.key_pair(), links.key_pair()
    arguments = {"credentials": keys, "server_key": server.public, **change}
    with pytest.raises(UsageError, match=words):
        links.dial("tcp://127.0.0.1:9", **arguments)


def test_the_problem_states_what_to_do() -> None:
    with ExitStack() as stack:
        made = stack.enter_context(world())
        stranger = links.key_pair()
        for words, changes in (
            (f"does not allow the key {stranger.public}; add it", {"credentials": stranger}),
            ("the server key may be wrong", {"server_key": stranger.public}),
            ("use keys on both sides or on none", {"credentials": None, "server_key": None}),
        ):
            link = made.dial(**changes)
            made.until(lambda link=link, words=words: words in link.problem, words)
            assert made.listener.address in link.problem
            time.sleep(0.05)
            made.step(0)
            # The end of the connection is a later event. It must not replace the reason of the
            # refusal.
            assert words in link.problem


def test_a_name_that_does_not_resolve_is_the_problem() -> None:
    link = links.dial("tcp://no-such-host.invalid:7700", insecure=True)
    assert (
        "the name no-such-host.invalid in tcp://no-such-host.invalid:7700 is unknown"
        in link.problem
    )
    link.close()


def test_the_readme_states_the_required_version() -> None:
    folder = Path(__file__).parents[1]
    assert "pyzmq>=27.3" in (folder / "pyproject.toml").read_text()
    assert "requires 27.3" in (folder / "README.md").read_text()
