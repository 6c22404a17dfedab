"""Send invalid bytes: each call must return valid data or raise an error with a message."""

from __future__ import annotations

import random

from pto_core.errors import EndpointClosedError, ProtocolError
from pto_core.interfaces.frame import Answer, AnswerKind, Outcome
from pto_devkit.failure import expect
from pto_devkit.random_seed import random_numbers
from pto_devkit.transports.link import Capacity, ChildFace, ParentFace
from pto_devkit.transports.processes import apart
from pto_devkit.transports.subject import TransportSubject
from pto_devkit.transports.traffic import frame

_VICTIMS = 150
_CALLS = 40
_CAPACITY = Capacity(8, 4096)


def check_hostile_bytes(subject: TransportSubject) -> None:
    """Require that random bytes cause no crash, no blocked call and no invalid frame or answer.

    A frame or answer with an invalid length must not be returned.
    """
    with random_numbers(None) as numbers:
        seeds = [numbers.getrandbits(32) for _ in range(_VICTIMS)]
        apart(lambda: _try_all(subject, seeds))


def _try_all(subject: TransportSubject, seeds: list[int]) -> None:
    for seed in seeds:
        numbers = random.Random(seed)
        link = subject.link(_CAPACITY)
        parent, child = link.open_both()
        for number in range(1, _CALLS + 1):
            if numbers.random() < 0.3:
                at = numbers.choice((0, numbers.randrange(max(link.memory_bytes, 1))))
                subject.spoil(
                    link, numbers.choice(("parent", "child")), _noise(numbers), at // 8 * 8
                )
            _call(numbers, parent, child, number)
        parent.close()
        child.close()


def _noise(numbers: random.Random) -> bytes:
    """Return random bytes, or headers with an invalid length."""
    kind = numbers.random()
    if kind < 0.4:
        return numbers.randbytes(numbers.randint(1, 400))
    word = numbers.choice((0, 1, 64, 4096, 2**31, 2**32 - 1)).to_bytes(4, "little")
    return word * numbers.randint(1, 200) if kind < 0.8 else bytes(numbers.randint(1, 400))


def _call(numbers: random.Random, parent: ParentFace, child: ChildFace, number: int) -> None:
    try:
        match numbers.randrange(4):
            case 0:
                parent.submit([frame(number, numbers.randint(0, _CAPACITY.largest_data))])
            case 1:
                _expect_small([len(got.data) for got in parent.poll()])
            case 2:
                _expect_small([len(got.data) for got in child.receive(numbers.randint(0, 9))])
            case _:
                data = numbers.randbytes(numbers.randint(0, 200))
                child.answer(Answer(AnswerKind.COMPLETED, number, Outcome.FAILED, data))
    except (ProtocolError, EndpointClosedError):
        return


def _expect_small(sizes: list[int]) -> None:
    largest = max(sizes, default=0)
    expect(
        largest <= _CAPACITY.largest_data,
        f"{largest} bytes of data were returned, more than the limit",
    )
