"""A soak test with random kills. .ci/nightly runs it, and docs/soak.md records its results.

usage: kill_soak.py SECONDS [SEED]

A forked process creates random Workers (levels, chips, SUB children, hosts, reaction to a death,
windows, heap rings of a few KiB), which run random graphs. This process kills
processes of the Worker at random instants: children of any level in init(), in runs and in close(),
and sometimes the top process itself. The forked process checks the results of the runs. This
process compares the visible processes, mappings, descriptors and /dev/shm before and after each
Worker. A fault names its seed: `kill_soak.py 0 SEED` repeats that Worker. The kills then follow the
same schedule, but the machine's timing differs.
"""

from __future__ import annotations

import contextlib
import functools
import os
import random
import secrets
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from kill_talk import Talk
from kill_workers import run_seeds
from observer import PATIENCE_S, below
from sight import Sight, processes_with, session, worker_memory
from subject import Fault, Subject

WORKERS_OF_A_PROCESS = 25
SILENCE_S = 120
TRIES_MAX = 10  # attempts of a short soak to complete a run
SOON_S = 1.0
"""The processes below a killed top process should end within this time. Slower ends are counted."""
FAULTS_SHOWN = 20
TOP_IS_KILLED = 0.04


class TopKilled(Exception):
    """This process has killed the top process on purpose."""


@dataclass
class Observer:
    """Observes the Workers of a process under test, and kills their child processes."""

    phases: ClassVar = {"init": 0.05, "run": 0.75, "close": 0.15}
    """The probability that a phase has kills."""

    subject: Subject
    counts: Counter[str]
    seed: int = 0
    chosen: random.Random = field(default_factory=random.Random)
    before: Sight | None = None
    places: set[str] = field(default_factory=set)
    kills: int = 0

    def follow(self) -> None:
        """Observe the subject until it has used all its seeds. Raises Fault or TopKilled."""
        while True:
            message = self._hear()
            what = message["say"]
            if what == "end":
                return
            if what == "before":
                self._begin(message["seed"])
            elif what == "after":
                self._compare()
                self.counts["Workers"] += 1
            elif what == "wrong":
                raise Fault(message["message"] + "\n" + message["trace"])
            else:
                self._phase(what)
                continue
            self.subject.answer()

    def _hear(self, timeout_s: float = SILENCE_S) -> dict[str, Any]:
        message = self.subject.hear(timeout_s)
        if message is None:
            for pid in [self.subject.pid, *below(self.subject.pid)]:
                print("stacks of", pid, file=sys.stderr, flush=True)
                os.kill(pid, signal.SIGUSR1)
                time.sleep(1)
            raise Fault(f"nothing happened for {timeout_s} s")
        return message

    def _begin(self, seed: int) -> None:
        self.seed, self.kills = seed, 0
        self.chosen = random.Random(seed)
        self.places.clear()
        self.before = Sight.of(self.subject.pid)

    def _phase(self, phase: str) -> None:
        """Let the subject continue, with or without kills, until it reports the end of a phase."""
        chosen, kills = self.chosen, 0
        self._note_mappings()
        wanted = chosen.choice([1, 1, 2, 4, 12]) if chosen.random() < self.phases[phase] else 0
        pace_s = chosen.choice([0.002, 0.01, 0.03])
        takes_top = chosen.random() < TOP_IS_KILLED
        self.subject.answer()
        message = self._quiet(chosen.expovariate(1 / pace_s)) if wanted or takes_top else None
        while message is None and kills < wanted:
            kills += self._kill_one()
            message = self._quiet(chosen.expovariate(1 / pace_s))
        if message is None and takes_top:
            self._kill_top()
        message = message or self._hear()
        if message["say"] != "over":
            raise Fault(f"{message} in {phase}")
        self.kills += kills
        self.counts[f"kills in {phase}"] += kills
        self.counts["runs"] += phase == "run"
        self.subject.answer(kills=kills, all=self.kills)

    def _quiet(self, seconds: float) -> dict[str, Any] | None:
        return self.subject.hear(seconds)

    def _note_mappings(self) -> None:
        self.places |= worker_memory([self.subject.pid, *below(self.subject.pid)])

    def _kill_one(self) -> int:
        processes = below(self.subject.pid)
        if not processes:
            return 0
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.chosen.choice(processes), signal.SIGKILL)
            return 1
        return 0

    def _kill_top(self) -> None:
        self._note_mappings()
        begun = time.monotonic()
        os.kill(self.subject.pid, signal.SIGKILL)
        while left := session(self.subject.pid):
            if time.monotonic() - begun > PATIENCE_S:
                raise Fault(f"{left} outlived the top process {self.subject.pid}")
            time.sleep(0.005)
        took = time.monotonic() - begun
        self.counts["tops killed"] += 1
        self.counts["ends of a tree in over a second"] += took > SOON_S
        self._check_unmapped()
        raise TopKilled

    def _compare(self) -> None:
        """Require the same resources as before; wait a moment for processes that are ending."""
        assert self.before is not None
        deadline = time.monotonic() + PATIENCE_S
        while found := Sight.of(self.subject.pid).differences(self.before):
            if time.monotonic() > deadline:
                raise Fault("left behind: " + "; ".join(found))
            time.sleep(0.01)
        self._check_unmapped()

    def _check_unmapped(self) -> None:
        if pids := processes_with(self.places):
            raise Fault(f"memory of the Worker is still mapped by {pids}")


def soak(
    seconds: float,
    seed: int,
    workers: int = WORKERS_OF_A_PROCESS,
    body: Callable[[range, Talk], None] = run_seeds,
    observe: Callable[[Subject, Counter[str], int], Observer] = Observer,
) -> tuple[Counter[str], list[str]]:
    """Return a summary and the faults. The seeds of the Workers start at ``seed``.

    ``body`` uses the Workers of a range of seeds; ``observe`` creates the observer of its process.
    """
    counts: Counter[str] = Counter()
    faults: list[str] = []
    end = time.monotonic() + seconds
    while not counts["processes"] or (time.monotonic() < end and len(faults) < FAULTS_SHOWN):
        last = seed + (workers if seconds else 1)
        subject = Subject.of(functools.partial(body, range(seed, last)))
        observer = observe(subject, counts, seed)
        counts["processes"] += 1
        try:
            observer.follow()
            seed = last
        except TopKilled:
            seed = observer.seed + 1
        except Fault as fault:
            faults.append(f"seed {observer.seed}: {fault}")
            print(faults[-1], flush=True)
            seed = observer.seed + 1
        finally:
            subject.end()
    counts["seeds"] = seed
    return counts, faults


def faults_of_a_run(
    soak: Callable[[float, int, int], tuple[Counter[str], list[str]]], seconds: float, workers: int
) -> list[str]:
    """Return the faults of a short soak, repeated until a run was completed.

    On a busy machine, each Worker may be killed before its first run is completed.
    """
    seed = secrets.randbits(31)
    print("first seed", seed)
    for _ in range(TRIES_MAX):
        counts, faults = soak(seconds, seed, workers)
        if faults or counts["runs"]:
            return faults
        seed = counts["seeds"]
    return [f"no run was completed in {TRIES_MAX} attempts"]


def main() -> None:
    seconds = float(sys.argv[1])
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else secrets.randbits(31)
    report(soak, seconds, seed)


def report(
    run: Callable[[float, int], tuple[Counter[str], list[str]]], seconds: float, seed: int
) -> None:
    """Run a soak test, print its summary, and exit."""
    print("first seed", seed, flush=True)
    begun = time.monotonic()
    counts, faults = run(seconds, seed)
    for what, count in counts.items():
        print(f"{what}: {count}")
    print(f"{len(faults)} faults in {time.monotonic() - begun:.0f} s")
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
