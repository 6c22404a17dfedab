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
- vector append: what a task takes at the least, 64 bytes of record and 40 of payload, appended to
  two vectors.
- plain loop of calls: one thread calls the empty kernel through a pointer with each payload.
- empty native call: a C function for Python that takes the same arguments and does nothing; the
  loop around it is taken off, as it is from the figure.

GCC's OpenMP runs an independent task at once, in the thread that makes it, when 64 tasks a thread
are waiting; so most of those 100,000 are never queued.

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
- `Worker, chain alternating`, `Worker, groups of two, pipelined`, `one-task run on a busy Worker`:
  a task that alternates between children, or runs alone, waits for a cache line or a bell on the
  way there and back. With three processes on two cores a child gives its core up every second task
  of the alternating chain; the parent sleeps and wakes once for 20 tasks.
- `one-task run on a parked Worker`: after a pause of 2 ms the parent's begin and submit took 20 us
  in place of 1 on a busy machine, for cold caches it seems; the rest is the way to the child and
  back.
- `Worker, submit_many`, `Worker, replay`: what a submit takes is work of the parent, two lines of
  slot, an edge and a queue; a tensor that is changed is also searched for and remembered. The run
  included is what the child takes, and dispatch, frames and completions.

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
