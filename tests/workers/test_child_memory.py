"""Memory of chips at equal addresses: dependencies, the child that runs a task, and free()."""

# Invariant of this file: A task that names memory of a child runs on that child, or is refused at
# the submit.

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lost_children import (
    await_count,
    await_count_in_run,
    await_sent,
    child_pids,
    kill,
)
from task_arguments import given

from pto_core import ChipCallable, ContinuousTensor, In, Out, TaskArgs, TensorArgType, kernel, task
from pto_core.errors import ControlError, TaskFailedError, UsageError

CHIPS = {"platform": "a2a3sim", "runtime": "tensormap_and_ringbuffer"}
WORDS = 8
NBYTES = WORDS * 4
LIMIT_S = 60
IN, OUT, INOUT = TensorArgType.INPUT, TensorArgType.OUTPUT, TensorArgType.INOUT
OVER = TensorArgType.OUTPUT_EXISTING

MakeWorker = Callable[..., Any]


@task
def copied(x: In, out: Out) -> None:
    out[:] = x


@kernel(core="aiv")
def add_one(x: In, out: Out) -> None:
    np.add(x, 1, out=out)


def plus_one(rt: Any, x: In, out: Out) -> None:
    rt.submit(add_one, x, out)


@kernel(core="aiv")
def add_ten(x: In, out: Out) -> None:
    np.add(x, 10, out=out)


def plus_ten(rt: Any, x: In, out: Out) -> None:
    rt.submit(add_ten, x, out)


class Gate:
    """A gate at which tasks in any process wait until it is opened."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def open(self) -> None:
        self.path.touch()

    def pass_through(self) -> None:
        end = time.monotonic() + LIMIT_S
        while not self.path.exists() and time.monotonic() < end:
            time.sleep(0.001)


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    return Gate(tmp_path / "gate")


class Chips:
    """A Worker with chips, each with allocated memory that is 0 at first."""

    def __init__(self, worker: Any) -> None:
        self.worker = worker
        self.one = worker.register(ChipCallable(plus_one))
        self.ten = worker.register(ChipCallable(plus_ten))

    def memory(self, child: int) -> ContinuousTensor:
        address = self.worker.malloc(NBYTES, worker=child)
        self.fill(child, address, 0)
        return on_chip(address)

    def fill(self, child: int, address: int, value: float) -> None:
        self.worker.copy_to(address, np.full(WORDS, value, "float32"), worker=child)

    def value(self, child: int, memory: ContinuousTensor) -> float:
        found = np.zeros(WORDS, "float32")
        self.worker.copy_from(found, memory.address, worker=child)
        assert (found == found[0]).all()
        return float(found[0])

    def array(self, value: float = 0) -> Any:
        made = self.worker.shared_array(WORDS)
        made[:] = value
        return made

    def apart(self) -> tuple[ContinuousTensor, ContinuousTensor]:
        """Return memory of chip 0 and of chip 1; each address is live on only one chip."""
        first, same, second = self.memory(0), self.memory(1), self.memory(1)
        assert first.address == same.address != second.address
        self.worker.free(same.address, worker=1)
        return first, second


@pytest.fixture
def chips(make: MakeWorker) -> Chips:
    return Chips(make(device_ids=[0, 1], num_sub_workers=1, **CHIPS))


def on_chip(address: int, count: int = WORDS) -> ContinuousTensor:
    return ContinuousTensor.from_pointer(address, (count,), "float32", child_memory=True)


# ---- dependencies ----


@pytest.mark.parametrize("hazards", ["raw", "full"])
@pytest.mark.parametrize("is_replayed", [False, True], ids=["run", "replay"])
def test_a_task_of_one_chip_does_not_hide_the_writer_on_another(
    chips: Chips, gate: Gate, hazards: str, is_replayed: bool
) -> None:
    """A reader on chip 0 waits for a late writer on chip 0, although chip 1 wrote in between.

    A task on chip 0, submitted after the reader, opens the gate. If the reader does not wait for
    the writer, it runs before that task. The writer waits for two tasks, so that it is not sent to
    chip 0 before they have ended.
    """
    worker = chips.worker

    def write_late(args: Any) -> None:
        gate.pass_through()
        args.tensor(0)[:] = 10

    def open_gate(rt: Any, x: In) -> None:
        gate.open()

    late, opens = worker.register(write_late), worker.register(ChipCallable(open_gate))
    first, second = chips.memory(0), chips.memory(1)
    assert first.address == second.address
    source, other, out = chips.array(), chips.array(), chips.array()

    def graph(orch: Any, args: Any, config: Any) -> None:
        waits = [orch.submit_sub(late, given((each, OUT))) for each in (source, chips.array())]
        args = given((source, IN), (first, OVER))
        orch.submit_next_level(chips.one, args, worker=0, after=waits)
        hiding = orch.submit_next_level(chips.one, given((other, IN), (second, OVER)), worker=1)
        orch.submit_next_level(chips.one, given((first, IN), (out, OUT)), worker=0)
        orch.submit_next_level(opens, given((other, IN)), worker=0, after=[hiding])

    if is_replayed:
        worker.replay(worker.capture(graph, hazards=hazards))
    else:
        worker.run(graph, hazards=hazards)
    assert out.tolist() == [12] * WORDS
    assert (chips.value(0, first), chips.value(1, second)) == (11, 1)


# ---- the chip that runs a task ----


def test_a_task_without_a_pin_runs_on_the_chip_whose_memory_it_names(chips: Chips) -> None:
    _, memory = chips.apart()
    chips.fill(1, memory.address, 5)
    outs = [chips.array() for _ in range(10)]

    def graph(orch: Any, args: Any, config: Any) -> None:
        for number, out in enumerate(outs):
            wish = {"worker": 0, "hint": True} if number % 2 else {}
            orch.submit_next_level(chips.one, given((memory, IN), (out, OUT)), **wish)

    chips.worker.run(graph)
    chips.worker.replay(chips.worker.capture(graph))
    assert [out[0] for out in outs] == [6] * 10


def test_many_tasks_run_on_the_chip_whose_memory_they_name(chips: Chips) -> None:
    worker, parts = chips.worker, 6
    chips.memory(0)
    address = worker.malloc(parts * NBYTES, worker=1)
    worker.free(worker.malloc(NBYTES, worker=1), worker=1)
    worker.copy_to(address, np.repeat(np.arange(parts, dtype="float32"), WORDS), worker=1)
    shape = (parts, WORDS)
    memory = ContinuousTensor.from_pointer(address, shape, "float32", child_memory=True)
    out = worker.shared_array(shape)
    args = given((memory, IN), (out, OUT))
    worker.run(lambda orch, _, cfg: orch.submit_next_level_many(chips.one, args))
    assert (out == np.arange(1, parts + 1)[:, None]).all()


def test_members_of_a_group_run_on_the_chips_whose_memory_they_name(chips: Chips) -> None:
    on_0, on_1 = chips.apart()
    outs = [chips.array() for _ in range(2)]

    def group(*members: TaskArgs, **options: Any) -> None:
        chips.worker.run(
            lambda orch, args, cfg: orch.submit_next_level_group(
                chips.ten, list(members), **options
            )
        )

    group(given((on_1, IN), (outs[0], OUT)), given((on_0, IN), (outs[1], OUT)))
    group(given((on_1, IN), (outs[0], OUT)), given((outs[1], IN), (on_0, OUT)))
    assert chips.value(0, on_0) == 20
    group(given((outs[0], IN), (outs[1], OUT)), given((on_0, IN), (outs[0], OUT)))
    assert (outs[0] == 30).all()
    group(given((on_1, INOUT), (on_1, OUT)), given((on_0, IN), (on_0, OUT)), workers=[1, 0])
    assert (chips.value(0, on_0), chips.value(1, on_1)) == (30, 10)


def test_memory_of_another_chip_is_refused_at_the_submit(chips: Chips) -> None:
    on_0, on_1 = chips.apart()
    out = chips.array()

    def graph(orch: Any, args: Any, config: Any) -> None:
        one, group = orch.submit_next_level, orch.submit_next_level_group
        first, second = given((on_0, IN), (out, OUT)), given((on_1, IN), (out, OUT))
        plain = given((out, IN), (out, OUT))
        with pytest.raises(
            UsageError,
            match=r"tensor 0 \(32 bytes at 0x.*\) is in the memory of chip 0, "
            "but worker= names chip 1; name the chip that has the memory",
        ):
            one(chips.one, first, worker=1)
        with pytest.raises(
            UsageError,
            match=r"tensor 0 .* is in the memory of chip 0, and tensor 1 .* is "
            "in the memory of chip 1; a task can use the memory of only one chip",
        ):
            one(chips.one, given((on_0, IN), (on_1, OUT)))
        with pytest.raises(UsageError, match="memory of chip 1, but worker= names chip 0"):
            one(chips.one, given((on_0, IN), (on_1, OUT)), worker=0)
        with pytest.raises(UsageError, match=r"tensor 0 of member 1 .* workers= names chip 1"):
            group(chips.one, [plain, first], workers=[0, 1])
        with pytest.raises(UsageError, match="members 0 and 1 both use memory of chip 1"):
            group(chips.one, [second, second])
        with pytest.raises(UsageError, match=r"tensor 0 of member 0 .* and tensor 1 of member 0 "):
            group(chips.one, [given((on_0, IN), (on_1, OUT)), plain])

    chips.worker.run(graph)
    chips.worker.capture(graph)
    assert chips.worker.statistics()["submitted"] == 0


def test_the_submit_of_a_session_names_the_argument_in_the_memory_of_a_chip(chips: Chips) -> None:
    on_0, on_1 = chips.apart()
    out, chip, first = chips.array(), ChipCallable(plus_one), "argument 0 of plus_one"
    wrong: list[tuple[Callable[[Any], Any], str]] = [
        (lambda s: s.submit(chip, on_0, out, worker=1), f"{first} is in the memory of chip 0"),
        (lambda s: s.submit(chip, on_0, on_1), "and argument 1 of plus_one is in the memory"),
        (lambda s: s.submit(copied, on_0, out), "x of task function copied is in the memory"),
        (
            lambda s: s.submit_group(chip, [(out, out), (on_0, out)], workers=[0, 1]),
            f"{first}, in member 1, is in the memory of chip 0, but workers=",
        ),
    ]
    with chips.worker.session() as s:
        for submit, message in wrong:
            with pytest.raises(UsageError, match=message) as caught:
                submit(s)
            assert "0x" not in str(caught.value)


def test_an_address_on_several_chips_needs_a_pin(chips: Chips) -> None:
    memory = [chips.memory(child) for child in (0, 1)]
    assert memory[0].address == memory[1].address
    only_on_1 = chips.memory(1)
    chips.fill(1, memory[1].address, 7)
    outs = [chips.array() for _ in range(2)]

    def graph(orch: Any, args: Any, config: Any) -> None:
        one, group = orch.submit_next_level, orch.submit_next_level_group
        members = [given((each, IN), (out, OUT)) for each, out in zip(memory, outs, strict=True)]
        message = "memory of chips 0 and 1 at the same address; name the chip with "
        with pytest.raises(UsageError, match=message + "worker=$"):
            one(chips.one, members[0])
        with pytest.raises(UsageError, match=message + "worker= and without hint="):
            one(chips.one, members[0], worker=0, hint=True)
        with pytest.raises(UsageError, match=message + "workers="):
            group(chips.one, members)
        one(chips.ten, given((memory[1], IN), (only_on_1, OUT)))  # only chip 1 has both buffers
        group(chips.one, members, workers=[0, 1])

    chips.worker.run(graph)
    assert [out[0] for out in outs] == [1, 8]
    assert chips.value(1, only_on_1) == 17


def test_memory_that_no_chip_has_is_refused_at_the_submit(chips: Chips, make: MakeWorker) -> None:
    memory, out = chips.memory(0), chips.array()
    sub = chips.worker.register(nothing)
    strange = [
        on_chip(memory.address + NBYTES),
        on_chip(memory.address - 4),
        on_chip(memory.address, WORDS + 1),
        on_chip(memory.address + NBYTES, 0),
        on_chip(0),
    ]

    def graph(orch: Any, args: Any, config: Any) -> None:
        for tensor in strange:
            for options in ({}, {"worker": 0}):
                with pytest.raises(UsageError, match="is not in allocated memory of a chip"):
                    orch.submit_next_level(chips.one, given((out, IN), (tensor, OUT)), **options)
        with pytest.raises(UsageError, match="memory of a chip, which SUB children cannot access"):
            orch.submit_sub(sub, given((memory, IN)))

    chips.worker.run(graph)
    chips.worker.capture(graph)
    pod = make(level=4)
    pod.add_worker(make(level=3, num_sub_workers=1))
    handle = pod.register(nothing_at_all)
    with pytest.raises(UsageError, match="is not in allocated memory of a child of this Worker"):
        pod.run(lambda orch, args, cfg: orch.submit_next_level(handle, given((memory, IN))))


def nothing(args: Any) -> None: ...


def nothing_at_all(orch: Any, args: Any, config: Any) -> None: ...


def test_memory_of_a_chip_is_not_saved_for_retries(chips: Chips) -> None:
    memory = chips.memory(0)

    def graph(orch: Any, args: Any, config: Any) -> None:
        with pytest.raises(UsageError, match="changes memory of its child in place, but that"):
            orch.submit_next_level(chips.one, given((memory, IN), (memory, INOUT)), retries=1)
        orch.submit_next_level(chips.one, given((memory, IN), (memory, OUT)), retries=1)

    chips.worker.run(graph)
    chips.worker.replay(chips.worker.capture(graph))
    assert chips.value(0, memory) == 2
    assert chips.worker.statistics()["snapshot_peak_bytes"] == 0


# ---- the lifetime of memory ----


def test_memory_is_freed_while_another_chip_uses_its_address(chips: Chips, gate: Gate) -> None:
    worker = chips.worker

    def wait(rt: Any, x: In) -> None:
        gate.pass_through()

    slow = worker.register(ChipCallable(wait))
    memory = [chips.memory(child) for child in (0, 1)]
    address = memory[0].address
    assert memory[1].address == address

    def graph(orch: Any, args: Any, config: Any) -> None:
        orch.submit_next_level(chips.one, given((memory[1], IN), (memory[1], OUT)), worker=1).wait()
        handle = orch.submit_next_level(slow, given((memory[0], IN)), worker=0)
        message = f"free of {address:#x} on chip 0 while task .*, which names it, has not ended"
        with pytest.raises(UsageError, match=message):
            worker.free(address, worker=0)
        worker.free(address, worker=1)
        with pytest.raises(UsageError, match="memory of chip 0, but worker= names chip 1"):
            orch.submit_next_level(chips.one, given((memory[1], IN)), worker=1)
        gate.open()
        handle.wait()
        worker.free(address, worker=0)

    worker.run(graph)
    for child in (0, 1):
        with pytest.raises(ControlError, match="was freed"):
            worker.free(address, worker=child)


def test_memory_is_not_freed_while_the_last_of_many_tasks_uses_it(
    chips: Chips, gate: Gate, tmp_path: Path
) -> None:
    """Later tasks that name the memory are poisoned, so they end before the first task ends."""
    worker, begun = chips.worker, Gate(tmp_path / "begun")
    count = 600  # the driver removes records of ended tasks in blocks of 512

    def wait(rt: Any, x: In, number: int) -> None:
        if number == count - 1:
            begun.open()
            gate.pass_through()

    def fail(args: Any) -> None:
        raise ValueError("no luck")

    slow, failing = worker.register(ChipCallable(wait)), worker.register(fail)
    row, address = chips.array(), worker.malloc(count * 4, worker=0)
    parts = ContinuousTensor.from_pointer(address, (count, 1), "float32", child_memory=True)

    def graph(orch: Any, args: Any, config: Any) -> None:
        many = orch.submit_next_level_many(slow, given((parts, IN)), np.arange(count))
        begun.pass_through()
        orch.submit_sub(failing, given((row, OVER)))
        for _ in range(200):
            handle = orch.submit_next_level(chips.one, given((on_chip(address), IN), (row, IN)))
        handle.wait()
        with pytest.raises(UsageError, match=f"while task {many[-1]} .*which names it, has not"):
            worker.free(address, worker=0)
        gate.open()

    with pytest.raises(TaskFailedError, match="no luck"):
        worker.run(graph)
    worker.free(address, worker=0)


def test_memory_is_not_freed_while_a_replay_may_use_it(chips: Chips, gate: Gate) -> None:
    worker = chips.worker

    def wait(rt: Any, x: In) -> None:
        gate.pass_through()

    slow = worker.register(ChipCallable(wait))
    memory = chips.memory(1)
    graph = worker.capture(
        lambda orch, args, cfg: orch.submit_next_level(slow, given((memory, IN)))
    )
    replay = threading.Thread(target=worker.replay, args=(graph,))
    replay.start()
    await_sent(worker)
    with pytest.raises(UsageError, match="which names it, has not ended"):
        worker.free(memory.address, worker=1)
    gate.open()
    replay.join()
    with worker.session():  # another run, which does not use the memory
        worker.free(memory.address, worker=1)
    with pytest.raises(UsageError, match="the graph uses memory of child 1 that was freed since"):
        worker.replay(graph)


def test_an_argument_of_a_captured_graph_is_no_memory_of_a_chip(chips: Chips) -> None:
    memory = chips.memory(0)
    with pytest.raises(UsageError, match="tensor 0 of the arguments is memory of a child; use"):
        chips.worker.capture(lambda orch, args, cfg: None, given((memory, IN)))


def test_a_chip_that_died_has_lost_its_memory(chips: Chips) -> None:
    worker = chips.worker
    memory, other, out = chips.memory(0), chips.memory(1), chips.array()

    def graph(orch: Any, args: Any, config: Any) -> None:
        orch.submit_next_level(chips.one, given((memory, IN), (out, OUT)), worker=0)

    captured = worker.capture(graph)
    kill(child_pids()[0])
    assert await_count(worker, "restarts", 1) == 1
    assert memory.address == other.address
    with pytest.raises(UsageError, match="memory of chip 1, but worker= names chip 0"):
        worker.run(graph)
    with pytest.raises(UsageError, match="that was freed since the capture, or was lost"):
        worker.replay(captured)
    with pytest.raises(ControlError, match="not returned by malloc for this chip"):
        worker.free(memory.address, worker=0)
    worker.run(
        lambda orch, args, cfg: orch.submit_next_level(chips.ten, given((other, IN), (out, OUT)))
    )
    assert (out == 10).all()
    memory = chips.memory(0)
    worker.run(graph)
    worker.replay(captured)
    assert (out == 1).all()


def test_a_task_that_waited_fails_where_its_chip_has_lost_the_memory(
    chips: Chips, gate: Gate
) -> None:
    worker = chips.worker

    def wait(args: Any) -> None:
        gate.pass_through()

    late = worker.register(wait)
    memory, out = chips.memory(0), chips.array()

    def graph(orch: Any, args: Any, config: Any) -> None:
        waits = [orch.submit_sub(late, TaskArgs()) for _ in range(2)]
        orch.submit_next_level(chips.one, given((memory, IN), (out, OUT)), worker=0, after=waits)
        kill(child_pids()[0])
        assert await_count_in_run(worker, "deaths", 1) == 1
        gate.open()

    with pytest.raises(TaskFailedError, match="is not in memory of this chip"):
        worker.run(graph)
    assert worker.statistics()["restarts"] == 1


# ---- copies ----


def test_copies_of_many_pieces_arrive_whole_in_both_directions(chips: Chips) -> None:
    """Copies use a buffer of a few MiB, one piece at a time."""
    numbers = np.random.default_rng(1)
    sent = numbers.integers(0, 256, 9 * 2**20 + 5, np.uint8)
    address = chips.worker.malloc(sent.nbytes + 7, worker=1)
    chips.worker.copy_to(address, sent, worker=1)
    found = np.zeros_like(sent)
    chips.worker.copy_from(found, address, worker=1)
    np.testing.assert_array_equal(found, sent)
    part = np.zeros(100, np.uint8)
    chips.worker.copy_from(part, address + 5 * 2**20, worker=1)
    np.testing.assert_array_equal(part, sent[5 * 2**20 :][:100])
