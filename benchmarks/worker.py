"""Figures of a Worker with Python functions and simulated chips as children."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from benchmarks import parked
from benchmarks.effort import Effort
from benchmarks.figure import Figure, interleaved, percentile, wall_s
from benchmarks.graphs import SOURCES
from benchmarks.idle import SECONDS, sleeper
from benchmarks.level2 import HANDOVER
from benchmarks.native import Binaries, numbers
from pto_core import CapturedGraph, Worker
from pto_core.published import (
    ChipCallable,
    ContinuousTensor,
    CoreCallable,
    KernelSource,
    OrchestrationSource,
    TaskArgs,
    TensorArgType,
)
from pto_core.worker.runs import Runs

TASKS = 10_000
WAITING = 1_000_000
CALLS = "plain Python calls of the function"

Graph = Callable[[Any, Any, Any], None]


def nothing(args: Any = None) -> None:
    """Do nothing; the figures of overhead use this task."""


def work(args: Any) -> None:
    """Keep a core busy for 50 microseconds."""
    end = time.perf_counter_ns() + 50_000
    while time.perf_counter_ns() < end:
        pass


def figures(binaries: Binaries, effort: Effort) -> Iterator[Figure]:
    """Measure Workers of one and of two children, then the cost of starting and waiting."""
    with Worker(level=3, num_sub_workers=1) as worker:
        yield from _one_child(worker, binaries, effort)
    with Worker(level=3, num_sub_workers=2) as worker:
        yield from _two_children(worker, binaries, effort)
    yield from _life(effort)
    yield _idle(effort)
    yield _waiting_tasks(effort)
    yield _chip(binaries, effort)


def _one_child(worker: Worker, binaries: Binaries, effort: Effort) -> Iterator[Figure]:
    handle = worker.register(nothing)
    rows = [ContinuousTensor.from_array(row) for row in worker.shared_array((256, 4))]
    tasks = effort.size(TASKS)
    submit_s = 0.0

    def independent(orch: Any, args: Any, config: Any) -> None:
        nonlocal submit_s
        submit = orch.submit_sub
        start = time.perf_counter()
        for _ in range(tasks):
            submit(handle)
        submit_s = time.perf_counter() - start

    def four_tensors(orch: Any, args: Any, config: Any) -> None:
        submit = orch.submit_sub
        for task in range(tasks):
            given = TaskArgs()
            for tensor in rows[4 * (task % 64) : 4 * (task % 64) + 4]:
                given.add_tensor(tensor)
            submit(handle, given)

    def chain(orch: Any, args: Any, config: Any) -> None:
        submit = orch.submit_sub
        given = _inout(rows[0])
        for _ in range(tasks):
            submit(handle, given)

    def calls() -> float:
        call = nothing
        return _a_task(tasks, lambda: [call() for _ in range(tasks)])

    def submits() -> float:
        worker.run(independent)
        return submit_s / tasks * 1e6

    def runs(graph: Graph) -> Callable[[], float]:
        return lambda: _a_task(tasks, lambda: worker.run(graph))

    yield from _overheads(
        {
            "independent": runs(independent),
            "submit": submits,
            "four": runs(four_tensors),
            "chain": runs(chain),
            "calls": calls,
            **_without_python(worker, handle, tasks, chain),
        },
        effort,
    )
    yield _one_task("one child", worker, handle, 2.0, binaries, effort)
    yield from parked.figures(1, worker, handle, binaries, effort)


def _overheads(measures: dict[str, Callable[[], float]], effort: Effort) -> Iterator[Figure]:
    taken = interleaved(measures, effort.repeats)
    for name, key, budget in (
        ("Worker, independent tasks, one child", "independent", 0.35),
        ("Worker, submit", "submit", 0.30),
        ("Worker, four distinct tensors", "four", 0.9),
        ("Worker, chain in one child", "chain", 0.4),
        ("Worker, submit_many, one tensor", "one of many", 0.10),
        ("Worker, submit_many, four tensors", "four of many", 0.25),
        ("Worker, submit_many, one tensor that is changed", "one changed", None),
        ("Worker, submit_many, one tensor, run included", "many run", None),
        ("Worker, replay, submits, one tensor", "replay", 0.10),
        ("Worker, replay, submits, chain in one child", "replayed chain", 0.10),
        ("Worker, replay, one tensor, CPU of the parent, run included", "replay CPU", 0.10),
        ("Worker, replay, one tensor, run included", "replay run", None),
    ):
        yield Figure(
            name, "us/task", taken[key], budget=budget, peer_name=CALLS, peer=taken["calls"]
        )


def _without_python(
    worker: Worker, handle: Any, tasks: int, chain: Graph
) -> dict[str, Callable[[], float]]:
    """Return measures in which one Python call submits many tasks: submit_sub_many, or a replay."""
    arrays = [ContinuousTensor.from_array(worker.shared_array((tasks, 4))) for _ in range(5)]
    took_s = 0.0

    def many(given: TaskArgs) -> Graph:
        def graph(orch: Any, args: Any, config: Any) -> None:
            nonlocal took_s
            took_s = wall_s(lambda: orch.submit_sub_many(handle, given))

        return graph

    def submits(given: TaskArgs) -> Callable[[], float]:
        def measure() -> float:
            worker.run(many(given))
            return took_s / tasks * 1e6

        return measure

    def of_arguments(orch: Any, args: Any, config: Any) -> None:
        orch.submit_sub_many(handle, _inputs(args.tensors))

    captured = worker.capture(of_arguments, _inputs(arrays[:1]))
    chained = worker.capture(chain)
    other = _inputs(arrays[4:])
    submit_replay = Runs.submit_replay

    def replays(graph: CapturedGraph, given: TaskArgs | None) -> Callable[[], float]:
        """Measure the submits of a replay without the wait for its end."""
        took: list[float] = []

        def timed(*arguments: Any) -> None:
            took.append(_a_task(tasks, lambda: submit_replay(*arguments)))

        def measure() -> float:
            with patch.object(Runs, "submit_replay", timed):
                worker.replay(graph, given)
            return took.pop()

        return measure

    def replay_cpu() -> float:
        """Return the CPU time of all threads of this process, up to the end of the last task."""
        start = time.process_time()
        worker.replay(captured, other)
        return (time.process_time() - start) / tasks * 1e6

    return {
        "one of many": submits(_inputs(arrays[:1])),
        "four of many": submits(_inputs(arrays[:4])),
        "one changed": submits(_inout(arrays[0])),
        "many run": lambda: _a_task(tasks, lambda: worker.run(many(other))),
        "replay": replays(captured, other),
        "replayed chain": replays(chained, None),
        "replay CPU": replay_cpu,
        "replay run": lambda: _a_task(tasks, lambda: worker.replay(captured, other)),
    }


def _two_children(worker: Worker, binaries: Binaries, effort: Effort) -> Iterator[Figure]:
    handle, busy = worker.register(nothing), worker.register(work)
    row = ContinuousTensor.from_array(worker.shared_array((4,)))
    tasks = effort.size(TASKS)

    def alternating(orch: Any, args: Any, config: Any) -> None:
        given = _inout(row)
        for task in range(tasks):
            orch.submit_sub(handle, given, worker=task % 2)

    def groups(orch: Any, args: Any, config: Any) -> None:
        both = [TaskArgs(), TaskArgs()]
        for _ in range(tasks):
            orch.submit_sub_group(handle, both)

    def one_group(orch: Any, args: Any, config: Any) -> None:
        orch.submit_sub_group(handle, [TaskArgs(), TaskArgs()])

    def busy_tasks(orch: Any, args: Any, config: Any) -> None:
        given = TaskArgs()
        given.add_scalar(0)
        for _ in range(tasks):
            orch.submit_sub(busy, given)

    taken = interleaved(
        {
            "alternating": lambda: _a_task(tasks, lambda: worker.run(alternating)),
            "groups": lambda: _a_task(tasks, lambda: worker.run(groups)),
            "one group": lambda: _median_us(effort, lambda: worker.run(one_group)),
            "handover": lambda: _handover(binaries, effort),
        },
        effort.repeats,
    )
    for name, key, unit, budget in (
        ("Worker, chain alternating between two children", "alternating", "us/task", 1.0),
        ("Worker, groups of two, pipelined", "groups", "us/group", 0.5),
        ("Worker, groups of two, one at a time", "one group", "us/group", 8.0),
    ):
        yield Figure(
            name, unit, taken[key], budget=budget, peer_name=HANDOVER, peer=taken["handover"]
        )
    yield _one_task("two children", worker, handle, 8.0, binaries, effort)
    yield from parked.figures(2, worker, handle, binaries, effort)
    share = interleaved(
        {
            "ours": lambda: wall_s(lambda: worker.run(busy_tasks)),
            "bare": lambda: _two_bare_processes(tasks),
        },
        min(effort.repeats, 5),
    )
    yield Figure(
        "tasks of 50 us on 2 children, share of two bare processes",
        "x",
        [bare / ours for bare, ours in zip(share["bare"], share["ours"], strict=True)],
        budget=0.93,
        at_least=True,
        peer_name="two bare processes",
    )


def _one_task(
    where: str, worker: Worker, handle: Any, budget: float, binaries: Binaries, effort: Effort
) -> Figure:
    def one(orch: Any, args: Any, config: Any) -> None:
        orch.submit_sub(handle)

    taken = interleaved(
        {
            "ours": lambda: _median_us(effort, lambda: worker.run(one)),
            "floor": lambda: _handover(binaries, effort),
        },
        effort.repeats,
    )
    return Figure(
        f"one-task run on a busy Worker, {where}, median",
        "us",
        taken["ours"],
        budget=budget,
        peer_name=HANDOVER,
        peer=taken["floor"],
    )


def _life(effort: Effort) -> Iterator[Figure]:
    """Measure the start and end of two children, and the private memory of one."""
    start, end, private = [], [], []
    for _ in range(effort.repeats):
        worker = Worker(level=3, num_sub_workers=2)
        worker.register(nothing)
        start.append(wall_s(worker.init) * 1e3)
        private += [_private_dirty_mb(pid) for pid in _children()]
        end.append(wall_s(worker.close) * 1e3)
    forks = [_bare_fork() for _ in range(effort.repeats)]
    bare, times = "fork and end of two bare processes", [took for took, _ in forks]
    yield Figure("Worker.init, two children", "ms", start, 10.0, peer_name=bare, peer=times)
    yield Figure("Worker.close, two children", "ms", end, 5.0, peer_name=bare, peer=times)
    yield Figure(
        "private dirty memory of a child",
        "MB",
        private,
        budget=4.0,
        peer_name="a bare forked process",
        peer=[dirty for _, dirty in forks],
    )


def _idle(effort: Effort) -> Figure:
    """Measure the CPU use of an idle Worker with two children, after a run."""
    seconds = SECONDS / effort.divisor
    with Worker(level=3, num_sub_workers=2) as worker:
        handle = worker.register(nothing)
        worker.run(lambda orch, args, config: orch.submit_sub(handle))
        time.sleep(0.1)

        def ours() -> float:
            before = _processor_ns()
            time.sleep(seconds)
            return (_processor_ns() - before) / seconds / 1e7

        taken = interleaved({"ours": ours, "floor": sleeper(seconds)}, min(effort.repeats, 3))
    return Figure(
        "idle Worker, with its two children",
        "% CPU",
        taken["ours"],
        budget=0.5,
        peer_name="a sleeping Python process",
        peer=taken["floor"],
    )


def _processor_ns() -> int:
    """Return the CPU time of all threads of this process and of its children."""
    threads = [
        thread
        for process in (os.getpid(), *_children())
        for thread in Path(f"/proc/{process}/task").glob("*/schedstat")
    ]
    return sum(int(thread.read_text(encoding="ascii").split()[0]) for thread in threads)


def _waiting_tasks(effort: Effort) -> Figure:
    """Measure the parent's memory for a million tasks that wait for one other task."""
    tasks = effort.size(WAITING)
    taken: list[float] = []
    with Worker(level=3, num_sub_workers=1) as worker:
        handle, slow = worker.register(nothing), worker.register(_until_signalled)
        gate = worker.shared_array((1,), np.int64)
        row = ContinuousTensor.from_array(worker.shared_array((4,)))

        def graph(orch: Any, args: Any, config: Any) -> None:
            blocked = TaskArgs()
            blocked.add_tensor(ContinuousTensor.from_array(gate))
            blocked.add_tensor(row, TensorArgType.OUTPUT)
            orch.submit_sub(slow, blocked)
            before = _resident_mb()
            reader = TaskArgs()
            reader.add_tensor(row)
            for _ in range(tasks):
                orch.submit_sub(handle, reader)
            taken.append(_resident_mb() - before)
            gate[0] = 1

        worker.run(graph)
    return Figure(
        f"{WAITING:,} waiting tasks of one tensor",
        "MB",
        taken,
        budget=350.0,
        peer_name="as many TaskArgs of one tensor in a list",
        peer=[_kept_arguments_mb(tasks)],
    )


def _kept_arguments_mb(tasks: int) -> float:
    tensor = ContinuousTensor.from_pointer(1 << 40, (4,), np.float32)
    before = _resident_mb()
    kept = [_inout(tensor) for _ in range(tasks)]
    taken = _resident_mb() - before
    assert len(kept) == tasks
    return taken


def _until_signalled(args: Any) -> None:
    gate = args.tensor(0)
    while not gate[0]:
        time.sleep(0.001)


def _chip(binaries: Binaries, effort: Effort) -> Figure:
    empty = KernelSource(SOURCES / "empty.cpp")
    program = ChipCallable(
        OrchestrationSource(SOURCES / "orchestration" / "tensors.cpp"),
        children={0: CoreCallable(empty, "aiv"), 1: CoreCallable(empty, "aic")},
        signature=("inout", "scalar", "scalar", "scalar"),
    )
    runtime = "tensormap_and_ringbuffer"
    with Worker(level=3, platform="a2a3sim", runtime=runtime, device_ids=[0]) as worker:
        handle = worker.register(program)
        given = _inout(ContinuousTensor.from_array(worker.shared_array((1024,))))
        for word in (0, 1, 1):
            given.add_scalar(ctypes.c_int64(word))

        def one(orch: Any, args: Any, config: Any) -> None:
            orch.submit_next_level(handle, given)

        taken = interleaved(
            {
                "ours": lambda: _median_us(effort, lambda: worker.run(one)) / 1e3,
                "floor": lambda: _handover(binaries, effort) / 1e3,
            },
            effort.repeats,
        )
    return Figure(
        "one-task run on a simulated chip of a Worker, median",
        "ms",
        taken["ours"],
        budget=0.3,
        peer_name=HANDOVER,
        peer=taken["floor"],
    )


def _inputs(tensors: Iterable[ContinuousTensor]) -> TaskArgs:
    given = TaskArgs()
    for tensor in tensors:
        given.add_tensor(tensor)
    return given


def _inout(tensor: ContinuousTensor) -> TaskArgs:
    given = TaskArgs()
    given.add_tensor(tensor, TensorArgType.INOUT)
    return given


def _a_task(tasks: int, call: Callable[[], Any]) -> float:
    return wall_s(call) / tasks * 1e6


def _median_us(effort: Effort, call: Callable[[], Any]) -> float:
    return percentile([wall_s(call) * 1e6 for _ in range(effort.size(2_000))], 0.5)


def _handover(binaries: Binaries, effort: Effort) -> float:
    """Return the time of a round trip in microseconds."""
    return numbers(binaries.floors, "handover", effort.size(2_000))[0][0] / 1e3


def _two_bare_processes(tasks: int) -> float:
    """Return the seconds that two running processes take to execute half of the tasks each."""
    context = get_context("fork")
    barrier = context.Barrier(3)

    def half() -> None:
        barrier.wait()
        for _ in range(tasks // 2):
            work(None)
        barrier.wait()

    processes = [context.Process(target=half) for _ in range(2)]
    for process in processes:
        process.start()
    barrier.wait()
    taken = wall_s(barrier.wait)
    for process in processes:
        process.join()
    return taken


def _bare_fork() -> tuple[float, float]:
    """Return the milliseconds to start and end two processes, and the private MB of one."""
    start = time.perf_counter()
    children = []
    for _ in range(2):
        pid = os.fork()
        if pid == 0:
            signal.pause()
            os._exit(0)
        children.append(pid)
    started = time.perf_counter() - start
    dirty = _private_dirty_mb(children[0])
    start = time.perf_counter()
    for pid in children:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    return (started + time.perf_counter() - start) * 1e3, dirty


def _children() -> list[int]:
    listed = Path(f"/proc/self/task/{os.getpid()}/children").read_text(encoding="ascii")
    return [int(pid) for pid in listed.split()]


def _private_dirty_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
    (line,) = [line for line in lines if line.startswith("Private_Dirty:")]
    return int(line.split()[1]) / 1024


def _resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGESIZE") / 2**20
