"""Random Workers with children on other hosts, which run random graphs under kills and cuts.

Tasks append a line to a file when they begin and when they end, because hosts cannot share
counters.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import kill_graphs
import numpy as np
from kill_graphs import ALWAYS_FAILS, FAILS_FIRST, HEAP_RINGS, Children, Generator
from kill_talk import Talk
from kill_tasks import host_graph
from kill_trials import Limits, Trial
from kill_workers import start

from pto_core import Worker

LEASE_S = 2.0


@dataclass(frozen=True)
class Place:
    """The address of remote children, and a folder for the files of tasks."""

    address: str
    keys: str
    link: str
    folder: str


def counted_work(log: str) -> Callable[[Any], None]:
    """Return the task of a SUB child, which appends its starts and ends to a file."""

    def note(word: str, number: int, member: int) -> None:
        file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(file, f"{word} {number} {member}\n".encode())
        os.close(file)

    def is_first(number: int, member: int) -> bool:
        try:
            os.close(os.open(f"{log}.{number}.{member}", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        return True

    def work(args: Any) -> None:
        number, member, behaviour, bits, pause_us = (args.scalar(i) for i in range(5))
        note("begun", number, member)
        fails_now = behaviour == FAILS_FIRST and is_first(number, member)
        if behaviour == ALWAYS_FAILS or fails_now:
            raise ValueError(f"task {number}")
        kill_graphs.compute(number, bits, [args.tensor(i) for i in range(args.tensor_count)])
        if pause_us:
            time.sleep(pause_us / 1e6)
        note("ended", number, member)

    return work


@dataclass
class RemoteTrial(Trial):
    """A trial whose tasks append to a file."""

    log: Path = Path()

    def reset_counts(self) -> None:
        for file in self.log.parent.iterdir():
            file.unlink()
        self.log.touch()

    def may_begin_poisoned(self, kills: int) -> bool:
        """Return whether a host was killed: it may have run a producer and its consumer."""
        return kills > 0

    def is_loss(self, error: Any) -> bool:
        """A failed start of a child counts as the loss of its tasks."""
        return super().is_loss(error) or "ChildStartError" in str(error)

    def counts(self) -> tuple[Any, Any]:
        shape = (kill_graphs.MOST_TASKS, kill_graphs.MOST_MEMBERS)
        found = {"begun": np.zeros(shape, np.int64), "ended": np.zeros(shape, np.int64)}
        for line in self.log.read_text().splitlines():
            word, number, member = line.split()
            found[word][int(number), int(member)] += 1
        return found["begun"], found["ended"]


@dataclass(frozen=True)
class RemoteShape:
    """The properties of a Worker, chosen by a seed. ``are_remote``: one entry for each child."""

    are_remote: list[bool]
    subs: int
    settings: dict[str, Any]
    runs: int

    @classmethod
    def random(cls, chosen: random.Random) -> RemoteShape:
        are_remote = [True, *chosen.choices([True, False], k=chosen.randrange(3))]
        chosen.shuffle(are_remote)
        settings = {
            "heap_ring_size": chosen.choice(HEAP_RINGS),
            "on_worker_death": chosen.choice(["fail", "restart", "reroute"]),
            "child_window": chosen.choice([1, 2, 8, 64]),
        }
        return cls(are_remote, chosen.choice([0, 0, 1]), settings, chosen.randint(1, 4))

    @property
    def limits(self) -> Limits:
        # Any frame that was sent to another host may have begun there, up to the whole window.
        window = self.settings["child_window"]
        is_final = self.settings.get("on_worker_death") == "reroute"
        return Limits(window, window, is_final, has_hosts=True)


def worker_of(shape: RemoteShape, place: Place, log: Path) -> tuple[Worker, tuple[Any, Any]]:
    worker = Worker(4, num_sub_workers=shape.subs, **shape.settings)
    work = counted_work(str(log))
    leaves = []
    for is_remote in shape.are_remote:
        there = {"host": place.address, "keys": place.keys, "remote_transport": place.link}
        more = {**there, "remote_lease_s": LEASE_S} if is_remote else {}
        host = Worker(3, num_sub_workers=1, **shape.settings, **more)
        leaves.append(host.register(work))
        worker.add_worker(host)
    handles = worker.register(host_graph(leaves)), worker.register(work) if shape.subs else None
    return worker, handles


def live_remotely(place: Place, seed: int, talk: Talk) -> None:
    """Create the Worker of a seed, use it under kills and cuts, and close it."""
    chosen = random.Random(seed)
    shape = RemoteShape.random(chosen)
    folder = Path(place.folder) / str(seed)
    folder.mkdir()
    log = folder / "tasks.log"
    worker, handles = worker_of(shape, place, log)
    memory = worker.shared_array((kill_graphs.ARRAYS, kill_graphs.WORDS), "int64")
    children = Children(len(shape.are_remote), shape.subs, are_chips=False)
    try:
        start(worker, talk)
        for _ in range(shape.runs):
            program = Generator(chosen, children).make()
            trial = RemoteTrial(program, worker, handles, memory, shape.limits, log)
            trial.require(trial.run(talk))
    finally:
        with talk.kills("close"):
            worker.close()
        for file in folder.iterdir():
            file.unlink()
        folder.rmdir()


def warm_up_remotely(place: Place) -> None:
    """Create all resources that stay until the process ends, before the first comparison."""
    shape = RemoteShape([True, False], 1, {"heap_ring_size": HEAP_RINGS[0]}, 0)
    worker, _ = worker_of(shape, place, Path(place.folder) / "unused")
    with worker:
        worker.run(lambda orch, args, config: None)
