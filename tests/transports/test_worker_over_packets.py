"""The engine knows the endpoint interface only: a Worker runs over a transport in plain Python."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import packets
import pytest

from pto_core import TaskArgs, TensorArgType, Worker
from pto_core.errors import TaskFailedError

ADDITIONS = 50


def test_a_worker_runs_over_the_example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packets.install(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)

    def add(args) -> None:
        args.tensor(0)[:] += 1

    def fail() -> None:
        raise ValueError("told over packets")

    with Worker(level=3, num_sub_workers=2, transport=packets.NAME) as worker:
        numbers = worker.shared_array((4,), np.int64)
        adding, failing = worker.register(add), worker.register(fail)

        def additions(orch, args, config) -> None:
            for _ in range(ADDITIONS):
                arguments = TaskArgs()
                arguments.add_tensor(numbers, TensorArgType.INOUT)
                orch.submit_sub(adding, arguments)

        worker.run(additions)
        assert numbers.tolist() == [ADDITIONS] * 4
        with pytest.raises(TaskFailedError, match="told over packets"):
            worker.run(lambda orch, args, config: orch.submit_sub(failing))
        worker.run(additions)
        assert numbers.tolist() == [2 * ADDITIONS] * 4
