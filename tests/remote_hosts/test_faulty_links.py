"""Links that lose, repeat, reorder and cut: each task runs once, and the results are correct."""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import faulty_link
import numpy as np
import pytest
from remote_hosts import counted, running_agent, task_args, write_line

from pto_core import DataType, TensorArgType, Worker
from pto_core.errors import ChildHungError

STEPS = 12
OUTPUT = TensorArgType.OUTPUT
FAULTS: dict[str, dict[str, Any]] = {
    "cuts": {"cut": 0.1},
    "losses": {"lose": 0.1},
    "disorder": {"duplicate": 0.2, "reorder": 0.2, "clog": 0.2},
    "everything": {"cut": 0.03, "lose": 0.05, "duplicate": 0.1, "reorder": 0.1, "clog": 0.1},
}


def run_program(tmp_path: Path, link: str, large: int) -> None:
    """Run a chain and independent tasks on a remote Worker; compare with the sequential answer."""
    log = tmp_path / "tasks.log"
    log.touch()
    with running_agent(tmp_path, link, None) as agent, Worker(level=4) as worker:
        remote = agent.worker(num_sub_workers=0, remote_lease_s=20)

        def step(orch: Any, args: Any, config: Any) -> None:
            write_line(log, f"{args.scalar(0)}\n")
            args.tensor(1)[:] = args.tensor(0) + 1

        added = worker.register(step)
        there = worker.add_worker(remote)
        x = counted(worker, large)
        ends = [counted(worker, large) for _ in range(3)]

        def graph(orch: Any, args: Any, config: Any) -> None:
            def submit(source: Any, target: Any, number: int, **options: Any) -> None:
                made = task_args(source, target, **options)
                made.add_scalar(number)
                orch.submit_next_level(added, made, worker=there)

            last = x
            for number in range(STEPS):
                following = orch.alloc(x.shape, DataType.FLOAT32)
                submit(last, following, number, out=OUTPUT)
                last = following
            submit(last, ends[0], STEPS)
            submit(x, ends[1], STEPS + 1)
            submit(ends[1], ends[2], STEPS + 2)

        worker.run(graph)
        assert np.array_equal(ends[0], x + STEPS + 1)
        assert np.array_equal(ends[1], x + 1)
        assert np.array_equal(ends[2], x + 2)
        assert Counter(log.read_text().split()) == {str(n): 1 for n in range(STEPS + 3)}


@pytest.mark.parametrize("kind", FAULTS)
def test_each_task_runs_once(
    kind: str, faulty: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(2):
        print(f"seed={seed}")
        monkeypatch.setenv(faulty_link.VARIABLE, json.dumps({**FAULTS[kind], "seed": seed}))
        folder = tmp_path / str(seed)
        folder.mkdir()
        run_program(folder, faulty, large=100 if seed else 300_000)


LIMIT_S = 2.0
PIECES = 8
PIECE_BYTES = 1 << 20


@pytest.mark.parametrize("is_lost", [True, False])
def test_a_time_limit_bounds_the_wait_for_inputs_that_do_not_arrive(
    is_lost: bool, faulty: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A link that loses large messages is not cut. Inputs that arrive slowly may take longer."""
    faults = {"loses_large": is_lost, "pace_s": 2 * LIMIT_S / PIECES}
    monkeypatch.setenv(faulty_link.VARIABLE, json.dumps(faults))
    with (
        running_agent(tmp_path, faulty, None) as agent,
        Worker(level=4, task_timeout_s=LIMIT_S) as worker,
    ):

        def total(orch: Any, args: Any, config: Any) -> None:
            args.tensor(1)[:] = args.tensor(0).sum()

        handle = worker.register(total)
        worker.add_worker(agent.worker(num_sub_workers=0))
        x, out = worker.shared_array((PIECES * PIECE_BYTES,), "uint8"), counted(worker, 1)
        x[:] = 1
        given = task_args(x, out)

        def run() -> None:
            worker.run(lambda orch, _args, _config: orch.submit_next_level(handle, given))

        if is_lost:
            with pytest.raises(ChildHungError, match="within its time limit of 2 s"):
                run()
        else:
            began = time.monotonic()
            run()
            assert out[0] == PIECES * PIECE_BYTES
            assert time.monotonic() - began > LIMIT_S
