"""Random tensors in a small memory: ranges, boxes of several shapes, keys, heap buffers.

Some tensors are in the memory of a child, at addresses that the host uses too.
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Iterator
from dataclasses import replace

from pto_devkit.abi import Tag
from pto_devkit.engine import ChildConfiguration, Configuration, RingConfiguration
from pto_devkit.engine.interface import (
    Allocate,
    Box,
    ChildReady,
    Completion,
    Dispatch,
    Event,
    Hazards,
    Instruction,
    Kind,
    Member,
    Outcome,
    RunBegin,
    RunEnd,
    ScopeBegin,
    ScopeEnd,
    Send,
    Submit,
    Submitted,
    Tensor,
)

USER = 1 << 33
USER_BYTES = 2048
HEAP = 1 << 40
RING_BYTES = 16 * 1024


def configuration() -> Configuration:
    rings = tuple(RingConfiguration(HEAP + (ring << 24), RING_BYTES) for ring in range(4))
    return Configuration((ChildConfiguration(Kind.SUB, 8),) * 2, rings)


class RegionStream:
    """The events of one run; :meth:`hear` receives the engine's answer to each."""

    def __init__(self, numbers: random.Random, run: int = 0) -> None:
        self.numbers = numbers
        self.run = run
        self.scopes: list[list[tuple[int, int]]] = [[]]
        """The buffers of each open scope: address and size."""
        self.frames: tuple[deque[int], deque[int]] = (deque(), deque())

    def events(self, count: int) -> Iterator[Event]:
        hazards = self.numbers.choice(list(Hazards))
        yield from (ChildReady(0), ChildReady(1), RunBegin(hazards))
        for _ in range(count):
            yield self.event()
        yield from (ScopeEnd() for _ in self.scopes[1:])
        yield RunEnd()
        yield Dispatch()
        while any(self.frames):
            yield self.completion()
            yield Dispatch()

    def hear(self, event: Event, answer: list[Instruction]) -> None:
        for instruction in answer:
            if isinstance(instruction, Send):
                self.frames[instruction.child].append(instruction.count)
            elif isinstance(instruction, Submitted):
                self._keep(event, instruction.addresses)

    def _keep(self, event: Event, addresses: tuple[int, ...]) -> None:
        if isinstance(event, Allocate):
            sizes = [event.nbytes]
        else:
            assert isinstance(event, Submit)
            sizes = [t.nbytes for member in event.members for t in member.tensors if not t.address]
        self.scopes[-1] += [pair for pair in zip(addresses, sizes, strict=True) if pair[1]]

    def event(self) -> Event:
        """Return a random event inside the run."""
        choice = self.numbers.random()
        if choice < 0.08 and len(self.scopes) < 6:
            self.scopes.append([])
            return ScopeBegin(self.run)
        if choice < 0.16 and len(self.scopes) > 1:
            self.scopes.pop()
            return ScopeEnd(self.run)
        if choice < 0.22:
            return Allocate(self.numbers.choice([0, 1, 1000, 1025, 3000]), self.run)
        if choice < 0.4 and any(self.frames):
            return self.completion()
        if choice < 0.55:
            return Dispatch()
        members = tuple(
            Member(tuple(self._somewhere() for _ in range(self.numbers.randint(0, 3))))
            for _ in range(self.numbers.choice([1, 1, 1, 2]))
        )
        return Submit(Kind.SUB, members, run=self.run)

    def completion(self) -> Completion:
        """Return the success of a frame that was sent."""
        child = self.numbers.choice([child for child in (0, 1) if self.frames[child]])
        frames = self.frames[child]
        count = frames[self.numbers.randrange(len(frames))]
        while frames and frames[0] <= count:
            frames.popleft()
        # A frame that was sent early behind a failure is skipped; this generator does not model
        # that.
        return Completion(child, count, Outcome.SUCCEEDED)

    def _somewhere(self) -> Tensor:
        tensor = self._tensor()
        if tensor.address and self.numbers.random() < 0.25:
            return replace(tensor, child=self.numbers.randrange(2))
        return tensor

    def _tensor(self) -> Tensor:
        numbers = self.numbers
        tag = numbers.choice([tag for tag in Tag if tag is not Tag.SCALAR])
        choice = numbers.random()
        if choice < 0.1:
            return Tensor(0, numbers.choice([0, 1, 1500, 2048]), Tag.OUTPUT)
        if choice < 0.2:
            return Tensor(USER + numbers.randrange(4), 0, tag)
        buffers = [buffer for scope in self.scopes for buffer in scope]
        base, size = USER, USER_BYTES
        if buffers and choice < 0.5:
            base, size = numbers.choice(buffers)
        elif choice < 0.53:
            # most of these addresses belong to no task, so the engine refuses them
            base = HEAP + numbers.randrange(RING_BYTES)
        return (
            self._box(base, size, tag) if numbers.random() < 0.5 else self._range(base, size, tag)
        )

    def _range(self, base: int, size: int, tag: Tag) -> Tensor:
        low = self.numbers.randrange(size)
        length = self.numbers.choice([1, 16, 64, size])
        return Tensor(base + low, min(length, size - low), tag)

    def _box(self, base: int, size: int, tag: Tag) -> Tensor:
        numbers = self.numbers
        element = numbers.choice([each for each in (1, 2, 4) if each <= size])
        left = max(1, size // element)
        raw: list[int] = []
        for _ in range(numbers.randint(1, 4)):
            raw.append(numbers.choice([side for side in (1, 2, 4, 8, 16) if side <= left]))
            left //= raw[-1]
        low = [numbers.randrange(side) for side in raw]
        extent = [numbers.randint(1, side - first) for side, first in zip(raw, low, strict=True)]
        strides = [element * math.prod(raw[:dim]) for dim in range(len(raw))]
        first = base + sum(a * b for a, b in zip(low, strides, strict=True))
        box = Box(base, element, tuple(raw), tuple(low), tuple(extent))
        return Tensor(first, element * math.prod(extent), tag, box)
