"""How the figures are shown."""

from __future__ import annotations

import statistics
from typing import Any

from benchmarks.figure import Figure

PAGE = """# Benchmarks

Written by `python -m benchmarks --markdown docs/benchmarks.md`, on a machine as idle as the two
load lines say: the average number of processes that wanted one of its cores. Compare figures only
within one run: machines of this kind drift by a factor of two within minutes. A budget is for the
median; spread is the distance between the quartiles over the median; ratio is this median over that
of the floor or peer, taken in turns with it. A figure in `x` is itself a ratio to what its row
names, taken in turns, and so has no second one.

What the floors are, all warm and all without this framework:

- round trip between two threads: one wakes the other and waits for its answer, both with the
  simulator's waiting policy (spin 1 us, yield, park).
- parked round trip between bare processes: over shared memory, with the children of the Worker
  beside it and their waiting policy (spin 1 us, yield until 75 us have passed, park). All of them
  park before each trip, as a Worker's do; the first answers, as a lone task goes to the first.
- vector append: what a task takes at the least, 64 bytes of record and 40 of payload, appended to
  two vectors.
- plain loop of calls: one thread calls the empty kernel through a pointer with each payload.
- empty native call: a C function for Python that takes the same arguments and does nothing; the
  loop around it is taken off, as it is from the figure.

GCC's OpenMP runs an independent task at once, in the thread that makes it, when 64 tasks a thread
are waiting; so most of those 100,000 are never queued.

Published figures of others on a machine of this kind with 2 cores, for orientation; they were not
taken in turns with ours:

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

What limits the figures that miss their budget here, or in other runs, by the beginnings of their
names:

- `run, 8 chains`: a worker fills cores, runs their kernels and polls them in batches of 8, one for
  each chain, which is too few to hide what a batch costs.
- `submit and run`, `orchestration alone`, `submit alone on one thread`: work rather than waiting.
  On one thread that does both, a task of one INOUT takes about as long as on two, of which the
  submit is a third to a half (its own row, over its budget by the checks and the payload that it
  writes); wiring, dispatch, the simulator's poll and completion are the rest. Two cores overlap,
  but each task's lines (a descriptor, 3.5 of payload, an edge, a log entry) move between them. A
  single chain has no overlap to gain from. Orchestration alone waits for room behind the schedulers
  for most of its time.
- `submit among 16,384`: the nodes of so many regions are more than the first cache holds, and
  random order makes each lookup a miss or two.
- `Worker, independent`, `Worker, submit`, `Worker, four`, `Worker, chain in one child`: in this run
  all, the plain call of the function too, took 1.5 to 1.9 times what it took hours before on
  the same machine, when these rows read 0.24, 0.23, 0.67 and 0.33 us. Taken in turns with the build
  of that time, independent tasks take 4 to 8 % more today.
- `Worker, chain alternating`, `Worker, groups of two, pipelined`, `one-task run on a busy Worker`:
  a task that alternates between children, or runs alone, waits for a cache line or a bell on the
  way there and back. With three processes on two cores a child gives its core up every second task
  of the alternating chain; the parent sleeps and wakes once for 20 tasks.
- `one-task run on a parked Worker`: cold code. The child is woken when the run begins, and comes
  while the program makes the task. After a pause of 2 ms on an idle machine begin took 18 to 29 us,
  5 to 8 of them for the wake, submit 7 and the end 23, where the bare trip took 12; a Worker that
  is not parked takes 1 us for begin and submit.
- `Worker, submit_many`, `Worker, replay`: what a submit takes is work of the parent, two lines of
  slot, an edge and a queue, and dispatch, frames and completions of what the child gets through
  meanwhile; it is spread over some forty functions, none above a twentieth. A tensor that is
  changed is also searched for and remembered. To the submits, the CPU of the parent over a whole
  replay adds the rest of its dispatch, frames and completions, the same as in every run.
- `Python submit`: over by less than runs differ; another run gave 0.37 us. It reads its arguments
  and their types.

"""
HEADER = ("figure", "median", "min", "spread", "budget", "met", "floor or peer", "ratio")


def rows(figures: list[Figure]) -> list[tuple[str, ...]]:
    """One row of text for each figure."""
    return [_row(figure) for figure in figures]


def markdown(figures: list[Figure], machine: dict[str, Any]) -> str:
    """The page ``docs/benchmarks.md`` holds: machine, then the table."""
    lines = [f"- {key}: {value}" for key, value in machine.items()]
    lines += ["", "| " + " | ".join(HEADER) + " |", "| --- " * len(HEADER) + "|"]
    lines += ["| " + " | ".join(row) + " |" for row in rows(figures)]
    return PAGE + "\n".join(lines) + "\n"


def plain(figures: list[Figure]) -> str:
    """Columns of text."""
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
