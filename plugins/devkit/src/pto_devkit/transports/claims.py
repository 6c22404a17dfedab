"""Check the capabilities of a transport, and that it wakes the process at the other end."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from pto_core.interfaces import NativeTransport
from pto_core.interfaces.frame import Answer, AnswerKind
from pto_devkit.failure import expect
from pto_devkit.transports import abi
from pto_devkit.transports.link import Capacity, Link, load_table
from pto_devkit.transports.processes import apart
from pto_devkit.transports.subject import TransportSubject
from pto_devkit.transports.traffic import frame, receive_one


def check_table(subject: TransportSubject) -> None:
    """Require that a native table has the version, the name and the capabilities of the plugin."""
    plugin = subject.plugin
    if not isinstance(plugin, NativeTransport):
        return  # the core, not the plugin, provides the table of a Python transport
    table = load_table(plugin)
    assert table is not None  # checked when the library was loaded
    expect(table.name == plugin.name.encode(), f"the table has the name {table.name!r}")
    bits = abi.TransportFlag(table.capabilities)
    claimed = {(flag.name or "").lower() for flag in abi.TransportFlag if flag in bits}
    stated = set(plugin.capabilities)
    expect(claimed == stated, f"the table claims {claimed}, the plugin {stated}")
    expect(
        load_table(plugin, "no such transport") is None,
        "the library returns a table for an unknown name",
    )


def check_memory_needed(subject: TransportSubject) -> None:
    """Require that the transport writes only to the memory that it has requested."""

    def body() -> None:
        for capacity in (Capacity(1, 4096), Capacity(300, 5000), Capacity(2, 100_000)):
            link = subject.link(capacity)
            parent, child = link.open_both()
            for number in range(1, 200):
                parent.submit([frame(number, number * 251 % link.capacity.largest_data)])
                child.receive()
                child.answer(Answer(AnswerKind.REPLY, number, data=b"x" * (number % 3000)))
                parent.poll()
            expect(
                link.margins_are_clean(),
                f"bytes outside of the {link.memory_bytes} bytes were written",
            )

    apart(body)


def check_bells(subject: TransportSubject) -> None:
    """Require that each write rings the doorbell of the other side, and no other doorbell."""

    def body() -> None:
        link = subject.link()
        parent, child = link.open_both()
        for number in range(1, 6):
            _expect_rung(link, "child", partial(parent.submit, [frame(number)]))
            receive_one(child)
            answer = Answer(AnswerKind.COMPLETED, number)
            _expect_rung(link, "parent", partial(child.answer, answer))
            reply = Answer(AnswerKind.REPLY, number, data=b"reply")
            _expect_rung(link, "parent", partial(child.answer, reply))

    apart(body)


def _expect_rung(link: Link, side: str, act: Callable[[], int]) -> None:
    bells = {"parent": link.parent_bell, "child": link.child_bell}
    for bell in bells.values():  # ringing a doorbell clears this word
        bell.sleepers = 1
    before = {name: bell.rung for name, bell in bells.items()}
    expect(act(), "an idle queue is full")
    for name, bell in bells.items():
        rung = bell.rung != before[name]
        expect(
            rung == (name == side), f"the {name}'s doorbell {'rang' if rung else 'did not ring'}"
        )
