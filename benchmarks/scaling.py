"""Measure 1 to 32 remote sessions on this machine, and extrapolate them to many hosts.

``python -m benchmarks.scaling`` prints the tables of docs/scaling.md. The parent, its relays and
the agent with its sessions run on one machine, so a straight line is fitted to the processor time
and memory of each side; elapsed times of the last sessions include the load of all others. Each
value is the least one of several runs, because other work on the machine only increases it. One
number of sessions is held out of the fit, and its prediction is compared with its measurement.

The traffic is that of the loopback interface. Run the program where nothing else uses it::

    unshare --net --map-root-user sh -c 'ip link set lo up; exec python -m benchmarks.scaling'
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import psutil

from benchmarks.machine import describe, load
from pto_core import Worker
from pto_core.published import TaskArgs, TensorArgType

FITTED, HELD_OUT = (1, 2, 4, 8, 16, 32), 24
TASKS, IDLE_S, HOSTS = 2000, 10.0, 1000
START, WORK, SLOWEST = "start, elapsed", "tasks, elapsed", "slowest session / median"


@dataclass(frozen=True)
class Quantity:
    """A measured quantity: its name, its unit, and the number of shown decimals."""

    name: str
    unit: str
    digits: int = 2


SIDES = ("parent", "relays", "other hosts")
_WORK = f"{TASKS:,} empty tasks a session"
QUANTITIES = (
    *(Quantity(f"start, processor time, {side}", "s") for side in SIDES),
    *(Quantity(f"memory, {side}", "MiB", 1) for side in SIDES[1:]),
    Quantity("descriptors of the parent", "", 0),
    *(Quantity(f"idle, processor time a second, {side}", "ms") for side in SIDES),
    Quantity("idle, traffic a second", "kB"),
    *(Quantity(f"{_WORK}, processor time, {side}", "s", 3) for side in SIDES),
    Quantity(f"{_WORK}, traffic", "kB", 0),
)
ELAPSED = (Quantity(START, "s"), Quantity(WORK, "s", 3), Quantity(SLOWEST, "", 2))


@dataclass(frozen=True)
class Line:
    """``fixed + each * sessions``: a quantity as a function of the number of sessions."""

    fixed: float
    each: float

    @classmethod
    def fitted(cls, points: Mapping[int, float]) -> Line:
        """Return the line that minimises the sum of the squared relative errors."""
        counts = np.array(list(points), float)
        values = np.array(list(points.values()), float)
        weights = 1 / np.maximum(np.abs(values), 1e-9)
        each, fixed = np.polyfit(counts, values, 1, w=weights)
        return cls(float(fixed), float(each))

    def at(self, sessions: int) -> float:
        """Return the value for a number of sessions."""
        return self.fixed + self.each * sessions


# ---- measure ----


class _Meter:
    """Measures the processes of each side: the parent, its relays, and the other hosts."""

    def __init__(self, agent: psutil.Process) -> None:
        self._agent = agent

    def memory_mib(self) -> list[float]:
        """Return the unshared memory of the relays and of the other hosts, in MiB."""
        sides = self._processes()[1:]
        return [sum(one.memory_full_info().uss for one in side) / 2**20 for side in sides]

    def spent(self, action: Callable[[], object]) -> list[float]:
        """Run an action; return the processor seconds of each side, and the kB of traffic."""
        before = self._counters()
        action()
        return [after - one for one, after in zip(before, self._counters(), strict=True)]

    def _counters(self) -> list[float]:
        sides = [sum(map(_processor_s, side)) for side in self._processes()]
        return [*sides, psutil.net_io_counters(pernic=True)["lo"].bytes_sent / 1e3]

    def _processes(self) -> list[list[psutil.Process]]:
        here = psutil.Process()
        relays = [one for one in here.children() if one != self._agent]
        return [[here], relays, [self._agent, *self._agent.children(recursive=True)]]


def _processor_s(process: psutil.Process) -> float:
    threads = Path(f"/proc/{process.pid}/task").iterdir()
    return sum(int((one / "schedstat").read_text().split()[0]) for one in threads) / 1e9


def measure(sessions: int, tasks: int = TASKS, idle_s: float = IDLE_S) -> dict[str, float]:
    """Return all quantities for a number of sessions."""
    with _agent() as (address, process), Worker(level=4) as worker:
        meter = _Meter(process)
        steps = worker.register(_nothing), worker.register(_stamp)
        for _ in range(sessions):
            worker.add_worker(Worker(level=3, num_sub_workers=1, host=address))
        stamps = worker.shared_array((sessions, 512), "float64")
        memory = meter.memory_mib()
        begin = time.perf_counter()
        *start, _ = meter.spent(worker.init)
        started_s = time.perf_counter() - begin
        grown = [after - one for one, after in zip(memory, meter.memory_mib(), strict=True)]
        descriptors = psutil.Process().num_fds()
        *idle, idle_kb = meter.spent(lambda: time.sleep(idle_s))
        graph = _equal_work(steps, sessions, tasks, stamps)
        worker.run(graph)  # the first run is a warm-up: it touches the memory
        begin = time.monotonic()
        *work, work_kb = meter.spent(lambda: worker.run(graph))
        ends = stamps[:, 0] - begin
    idle_ms = [one / idle_s * 1e3 for one in idle]
    values = (*start, *grown, descriptors, *idle_ms, idle_kb / idle_s, *work, work_kb)
    found = {one.name: float(value) for one, value in zip(QUANTITIES, values, strict=True)}
    elapsed = {START: started_s, WORK: float(max(ends)), SLOWEST: float(max(ends) / median(ends))}
    return {**found, **elapsed}


def _nothing(orch: Any, args: Any, config: Any) -> None:
    pass


def _stamp(orch: Any, args: Any, config: Any) -> None:
    args.tensor(0)[0] = time.monotonic()


def _equal_work(
    steps: tuple[Any, Any], sessions: int, tasks: int, stamps: Any
) -> Callable[..., None]:
    """Return a graph of ``tasks`` tasks for each session, then a task that records the time."""
    nothing, stamp = steps

    def graph(orch: Any, args: Any, config: Any) -> None:
        for _ in range(tasks):
            for child in range(sessions):
                orch.submit_next_level(nothing, worker=child)
        for child in range(sessions):
            made = TaskArgs()
            made.add_tensor(stamps[child], TensorArgType.OUTPUT_EXISTING)
            orch.submit_next_level(stamp, made, worker=child)

    return graph


@contextmanager
def _agent() -> Iterator[tuple[str, psutil.Process]]:
    command = [sys.executable, "-m", "pto_core.cli", "agent", "serve", "--bind"]
    process = subprocess.Popen([*command, "tcp://127.0.0.1:0"], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process.stdout.readline().split()[-1], psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait(30)


# ---- show ----


def tables(samples: Mapping[int, Mapping[str, float]], held_out: int, hosts: int) -> list[str]:
    """Return the lines of the page: the fit with its error, and the elapsed times."""
    lines = [
        f"| quantity | unit | fixed | each session | {held_out}: predicted | measured | error "
        f"| {hosts:,} hosts |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for quantity in QUANTITIES:
        points = {count: values[quantity.name] for count, values in samples.items()}
        measured = points.pop(held_out)
        line = Line.fitted(points)
        predicted = line.at(held_out)
        error = (predicted - measured) / measured if measured else 0.0
        shown = (line.fixed, line.each, predicted, measured)
        numbers = " | ".join(f"{value:,.{quantity.digits}f}" for value in shown)
        last = f"{line.at(hosts):,.0f}"
        lines.append(f"| {quantity.name} | {quantity.unit} | {numbers} | {error:+.0%} | {last} |")
    return [*lines, "", *_elapsed(samples)]


def _elapsed(samples: Mapping[int, Mapping[str, float]]) -> Iterable[str]:
    counts = sorted(samples)
    yield f"| sessions | {' | '.join(map(str, counts))} |"
    yield f"| --- |{' --- |' * len(counts)}"
    for quantity in ELAPSED:
        values = (f"{samples[count][quantity.name]:.{quantity.digits}f}" for count in counts)
        unit = f", {quantity.unit}" if quantity.unit else ""
        yield f"| {quantity.name}{unit} | {' | '.join(values)} |"


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print the tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scaling", description=__doc__)
    parser.add_argument("--fitted", type=int, nargs="+", default=FITTED, metavar="N")
    parser.add_argument("--held-out", type=int, default=HELD_OUT, metavar="N")
    parser.add_argument(
        "--repeats",
        type=int,
        default=2,
        metavar="N",
        help="runs of each size; the least value counts",
    )
    parser.add_argument("--tasks", type=int, default=TASKS, metavar="N", help="of each session")
    parser.add_argument("--idle", type=float, default=IDLE_S, metavar="S", help="seconds")
    given = parser.parse_args(arguments)
    os.environ.setdefault("PTO_CHILD_START_TIMEOUT_S", "300")
    print(f"{describe()}; load {load()}")
    samples = {}
    for count in sorted({*given.fitted, given.held_out}):
        all_of_them = [measure(count, given.tasks, given.idle) for _ in range(given.repeats)]
        samples[count] = {name: min(one[name] for one in all_of_them) for name in all_of_them[0]}
        print(f"{count} sessions measured, load {load()}", file=sys.stderr)
    print("\n".join(tables(samples, given.held_out, HOSTS)))


if __name__ == "__main__":
    main()
