"""Random Workers run random graphs while an observer kills their processes.

This process creates the Worker of a seed, reports to the observer when it may kill, and checks each
run.
"""

from __future__ import annotations

import gc
import os
import random
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import kill_graphs
import kill_tasks
from kill_graphs import HEAP_RINGS, Children, Generator
from kill_talk import Talk
from kill_trials import Limits, Trial, Wrong

from pto_core import ChipCallable, Worker
from pto_core.errors import ChildStartError

RUNTIMES = ("tensormap_and_ringbuffer", "host_build_graph")


@dataclass(frozen=True)
class Shape:
    """The properties of a Worker, chosen by a seed."""

    children: Children
    settings: dict[str, Any]
    chips: dict[str, Any]
    runs: int

    @classmethod
    def random(cls, chosen: random.Random) -> Shape:
        kind = chosen.choice(["subs", "subs", "chips", "hosts"])
        settings = {
            "heap_ring_size": chosen.choice(HEAP_RINGS),
            "on_worker_death": chosen.choice(["fail", "restart", "reroute"]),
            "child_window": chosen.choice([1, 2, 8, 64]),
        }
        runs = chosen.randint(1, 4)
        if kind == "subs":
            return cls(Children(0, chosen.randint(1, 4), False), settings, {}, runs)
        count, subs = chosen.randint(1, 2), chosen.randint(0, 2)
        chips = {"platform": "a2a3sim", "runtime": chosen.choice(RUNTIMES)}
        chips["device_ids"] = list(range(count))
        is_chips = kind == "chips"
        return cls(Children(count, subs, is_chips), settings, chips if is_chips else {}, runs)

    @property
    def has_hosts(self) -> bool:
        return self.children.next_level > 0 and not self.children.are_chips

    @property
    def limits(self) -> Limits:
        mode, window = self.settings["on_worker_death"], self.settings["child_window"]
        return Limits(
            lost_by_death=window if mode == "fail" else 1,
            groups_lost_by_death=window,
            deaths_are_final=mode == "reroute",
            has_hosts=self.has_hosts,
        )


def worker_of(shape: Shape, chosen: random.Random) -> tuple[Worker, tuple[Any, Any]]:
    """Create a Worker and register its callables, for its next level and for SUB children."""
    level = 4 if shape.has_hosts else 3
    subs = shape.children.subs
    worker = Worker(level, num_sub_workers=subs, **shape.chips, **shape.settings)
    if shape.has_hosts:
        leaves = []
        for _ in range(shape.children.next_level):
            host = Worker(3, num_sub_workers=chosen.randint(1, 2), **shape.settings)
            leaves.append(host.register(kill_tasks.work))
            worker.add_worker(host)
        next_level = worker.register(kill_tasks.host_graph(leaves))
    else:
        finds_edges = shape.chips.get("runtime") == RUNTIMES[0]
        on_a_chip = ChipCallable(kill_tasks.on_chip if finds_edges else kill_tasks.on_graph_chip)
        next_level = worker.register(on_a_chip) if shape.chips else None
    return worker, (next_level, worker.register(kill_tasks.work) if subs else None)


def live(seed: int, talk: Talk) -> None:
    """Create the Worker of a seed, use it while its children are killed, and close it."""
    chosen = random.Random(seed)
    shape = Shape.random(chosen)
    worker, handles = worker_of(shape, chosen)
    kill_tasks.count_in(worker)
    memory = worker.shared_array((kill_graphs.ARRAYS, kill_graphs.WORDS), "int64")
    try:
        start(worker, talk)
        for _ in range(shape.runs):
            program = Generator(chosen, shape.children).make()
            trial = Trial(program, worker, handles, memory, shape.limits)
            trial.require(trial.run(talk))
    finally:
        kill_tasks.stop_counting()
        with talk.kills("close"):
            worker.close()


def start(worker: Worker, talk: Talk) -> None:
    try:
        with talk.kills("init") as counts:
            worker.init()
    except ChildStartError as error:
        if not counts["kills"]:
            raise Wrong(f"init() failed without a kill: {error}") from error
        worker.init()


def warm_up() -> None:
    """Create all resources that stay until the process ends, before the first comparison."""
    chips = {"platform": "a2a3sim", "runtime": RUNTIMES[0], "device_ids": [0]}
    with Worker(3, num_sub_workers=1, heap_ring_size=HEAP_RINGS[0], **chips) as worker:
        worker.run(lambda orch, args, config: None)


def run_seeds(
    seeds: range,
    talk: Talk,
    live: Callable[[int, Talk], None] = live,
    warm: Callable[[], None] = warm_up,
) -> None:
    """Run the Workers of these seeds; the observer compares resources around each of them."""
    warm()
    for seed in seeds:
        talk.say("before", seed=seed)
        try:
            live(seed, talk)
        except Exception as error:
            talk.say("wrong", message=f"{type(error).__name__}: {error}", trace=trace_of(error))
            raise
        gc.collect()
        talk.say("after")
    os.write(talk.events, b'{"say": "end"}\n')


def trace_of(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))[-6000:]
