"""Format the figures."""

from __future__ import annotations

import statistics
from typing import Any

from benchmarks.figure import Figure

PAGE = """# Benchmarks

`python -m benchmarks --markdown docs/benchmarks.md` writes this page. The two load lines show how
idle the machine was: the average number of processes that wanted one of its cores. Compare figures
only within one run, because machines of this kind drift by a factor of two within minutes. A budget
applies to the median. Spread is the distance between the quartiles, divided by the median. Ratio is
this median divided by that of the floor or peer, measured alternately. A figure in `x` is itself a
ratio to the peer that its row names, measured alternately, so it has no second ratio.

The floors use no code of this framework and are measured warm:

- round trip between two threads: one wakes the other and waits for its answer, both with the
  simulator's waiting policy (spin 1 us, yield, park).
- parked round trip between bare processes: over shared memory, with as many processes as the Worker
  has children, and with their waiting policy (spin 1 us, yield until 75 us have passed, park). All
  park before each trip, as the children of a Worker do. The first one answers, because a single
  task goes to the first child.
- vector append: the minimum for a task: a record of 64 bytes and a payload of 40 bytes are appended
  to two vectors.
- plain loop of calls: one thread calls the empty kernel through a pointer with each payload.
- empty native call: a C function for Python that takes the same arguments and does nothing. The
  time of the loop around it is subtracted, here and in the figure.

GCC's OpenMP runs an independent task at once, in the thread that creates it, when 64 tasks for each
thread are waiting. So most of those 100,000 tasks are never queued.

Published figures of others on a machine of this kind with 2 cores, for orientation; they were not
measured alternately with ours:

- the best known engine of the same design, for the rows of a Worker: independent tasks that do
  nothing 9.2 us each, chain of 10,000 13.4 us each, four tensors 19.8 us, a group of two 6300 us,
  one-task run 43 us (99th percentile 4 ms with two children), idle children 100 % of a core each;
  on its simulator: one-task run 36 to 56 ms, 100,000 tasks of one INOUT over 8 slices 3.5 us each,
  host-built graph 7 us each, single chain 26 to 29 us each, submit on one of 16,384 slices 24 us
  (of 8: 0.17 us).
- ping-pong of two processes: 0.14 to 0.36 us spinning on two cores, 4 to 5 us through a futex on
  one core, about 50 us when the other virtual core was parked; pyzmq DEALER over ipc 44 us,
  pipelined 2.5 us a message.
- GCC OpenMP tasks with `depend` 0.25 to 0.65 us a task on 2 threads; Taskflow static graph 0.03 to
  0.07 us a task, dependent async 0.06 to 0.08 us.

The following limits the figures that miss their budget, in this run or in others. Rows are named by
the beginnings of their names:

- `run, 8 chains`: a worker fills cores, runs their kernels and polls them in batches of 8, one for
  each chain. Batches of 8 are too small to hide the cost of a batch.
- `submit and run`, `orchestration alone`, `submit alone on one thread`: the time is work, not
  waiting. On one thread, submitting and running a task of one INOUT takes about as long as on two
  threads. A third to a half of it is the submit, which has its own row and exceeds its budget by
  the checks and by writing the payload. The rest is wiring, dispatch, the simulator's poll and
  completion. Two cores overlap, but the cache lines of each task (a descriptor, 3.5 of payload, an
  edge, a log entry) move between them. A single chain has nothing to overlap. Orchestration alone
  waits for free space behind the schedulers for most of its time.
- `August 2026, submit with three tensors`, `August 2026, task in a chain`: a submit with
  three tensors takes 3,700 instructions, that of March 3,250: 680 to describe the arguments,
  970 to check and locate them, 830 for edges and the tensor map, 360 to allocate the output, 410 to
  write a payload of 1 KiB and a descriptor, and 230 to publish the task before.
- `August 2026, call of a recorded graph`: the runtime still submits each task, with a slot, a
  payload and edges. A record knows the edges between its tasks, so a task takes 1,540 instructions,
  2,340 in an inline call and 2,130 when all edges were looked up. The budget would need one node
  for the whole graph.
- `submit among 16,384`: the nodes of so many regions exceed the first-level cache, and in random
  order each lookup misses once or twice.
- `Worker, independent`, `Worker, submit`, `Worker, four`, `Worker, chain in one child`,
  `Worker.init`, `tasks of 50 us`: these meet their budgets when the machine is fast. Some runs take
  1.5 to 1.9 times as long as others, also for the floors in their rows.
  A submit returns a future of the standard library, an object of a Python class: to make and free
  it takes 0.05 us more than an object without attributes, and runs side by side take 110 of 2,840
  instructions a task in the parent.
- `Worker, chain alternating`, `Worker, groups of two`, `one-task run on a busy Worker`:
  a task that alternates between children, or runs alone, waits for a cache line or a doorbell in
  both directions. With three processes on two cores a child yields its core at every second task of
  the alternating chain; the parent sleeps and wakes once for 20 tasks.
- `one-task run on a parked Worker`: the code is cold. The child is woken when the run begins, and
  wakes up while the program makes the task. After a pause of 2 ms on an idle machine the begin took
  18 to 29 us (5 to 8 of them for the wake), the submit 7 us and the end 23 us; the bare trip took
  12 us. On a Worker that is not parked, begin and submit take 1 us.
- `Worker, submit_many`, `Worker, replay`: a submit is work of the parent: two cache lines of the
  slot, an edge and a queue, and meanwhile dispatch, frames and completions for the child. The work
  is spread over some forty functions, none with more than a twentieth. A tensor that is written is
  also looked up and recorded. The CPU time of the parent over a whole replay contains, besides the
  submits, the rest of its dispatch, frames and completions, as in every run.
- `remote, round trip`: the trip passes through six processes and four threads of ZeroMQ, which all
  sleep before it. The wake-ups need about two thirds of the time, the relay and the gateway the
  rest.
- `remote, empty tasks over`: five processes share two cores: parent, relay, gateway, Worker and
  local child. Each task also has a message in both directions.
- `remote, changed input`: the relay hashes the array, copies changed chunks into messages, and the
  gateway copies them into the shadow memory. Bare pyzmq does only the last copy.
- `remote, unchanged input`: a process that runs hashes the array as fast as it reads it. The relay
  has slept before and needs about a third more.
- `Python submit`: the excess is smaller than the difference between runs; another run measured 0.37
  us. The call reads its arguments and their types.
- `Worker, small pickled`: in processor time, the submit takes 11 us and the result 2.5 us in the
  interpreter. The child takes 5 us at the same time. The rest is the wait for the other process.

The sources of a package are compiled in units, which read their headers once. These are processor
seconds of a release build by GCC 12 without ccache, first with each source by itself, then in
units. Each was measured once, on 2 cores with a load of about 12, so only large differences mean
something. The figures of plugins include CMake; that of the core is compile time only.

- core 491, 184
- backend_a2a3 46, 25
- backend_sim 43, 16
- runtime_pto2 28, 22 with link-time optimisation, 16 as one unit without it
- runtime_hbg 15, 11
- transport_shm 3.8, 2.1

`./quickstart run` in a fresh clone took 228 s on 2 cores (environment, packages, compile of the
kernels, run), and 164 s since it builds packages side by side, calls the build backend without pip,
installs all packages at once, and leaves the compile of bytecode to the first use. The aim is 75 s.
The compile of the core alone takes 165 processor seconds, so it is the limit; `-O2` instead of
`-O3` would save 15 % of it.

`./quickstart test` then took 249 s on 2 idle cores: 4,762 tests, without the native tests and those
that take 0.4 s and more (aim 240 s). With them, one run took 950 s, 755 s of them in tests.

"""
HEADER = ("figure", "median", "min", "spread", "budget", "met", "floor or peer", "ratio")


def rows(figures: list[Figure]) -> list[tuple[str, ...]]:
    """Return one row of text for each figure."""
    return [_row(figure) for figure in figures]


def markdown(figures: list[Figure], machine: dict[str, Any]) -> str:
    """Return the page ``docs/benchmarks.md``: the machine, then the table."""
    lines = [f"- {key}: {value}" for key, value in machine.items()]
    lines += ["", "| " + " | ".join(HEADER) + " |", "| --- " * len(HEADER) + "|"]
    lines += ["| " + " | ".join(row) + " |" for row in rows(figures)]
    return PAGE + "\n".join(lines) + "\n"


def plain(figures: list[Figure]) -> str:
    """Align the columns of a text table."""
    table = [HEADER, *rows(figures)]
    widths = [max(len(row[column]) for row in table) for column in range(len(HEADER))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in table
    )


def _number(value: float) -> str:
    return f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"


def _row(figure: Figure) -> tuple[str, ...]:
    if not figure.samples or figure.not_measured:
        reason = f"not measured: {figure.not_measured}"
        return figure.name, reason, "", "", "", "", figure.peer_name, ""
    sign = ">=" if figure.at_least else "<="
    budget = "" if figure.budget is None else f"{sign} {_number(figure.budget)}"
    peer = figure.peer_name
    if figure.peer:
        peer += f" {_number(statistics.median(figure.peer))} {figure.unit}"
    return (
        figure.name,
        f"{_number(figure.median)} {figure.unit}",
        _number(min(figure.samples)),
        f"{figure.spread:.0%}",
        budget,
        {True: "yes", False: "NO", None: ""}[figure.met],
        peer,
        "" if figure.ratio is None else f"{figure.ratio:.2f}",
    )
