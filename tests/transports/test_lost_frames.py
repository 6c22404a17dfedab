"""A transport that loses a frame: the time limit of the task also bounds the wait for its start."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import packets
import pytest

from pto_core import TaskArgs, TensorArgType, Worker
from pto_core.errors import ChildHungError

LIMIT_S = 2.5
# Loses the second task frame that the program sends.
LOSSES = """
from pto_core.interfaces.frame import Frame, FrameKind


class LossyParent(PacketsEndpoint):
    seen = 0

    def submit(self, frames):
        kept = []
        for frame in frames:
            if Frame.unpack(frame).kind is FrameKind.TASK:
                LossyParent.seen += 1
                if LossyParent.seen == 2:
                    continue
            kept.append(frame)
        return len(frames) - len(kept) + super().submit(kept)


class LossyTransport(PacketsTransport):
    def connect(self, connection):
        parent, child = super().connect(connection)
        return LossyParent(parent.packets), child


plugin = LossyTransport()
"""


@pytest.fixture(autouse=True)
def _lossy_packets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packets.install(tmp_path)
    with (tmp_path / "pto_transport_packets.py").open("a") as file:
        file.write(LOSSES)
    monkeypatch.syspath_prepend(tmp_path)
    # so that each test imports its own module, which is forgotten afterwards
    monkeypatch.setitem(sys.modules, "pto_transport_packets", sys)
    del sys.modules["pto_transport_packets"]


@pytest.mark.parametrize("on_worker_death", ["fail", "restart"])
def test_a_lost_frame_ends_with_the_time_limit_of_its_task(on_worker_death: str) -> None:
    limit = re.escape(f"did not end within its time limit of {LIMIT_S} s")
    with Worker(
        3,
        num_sub_workers=1,
        transport=packets.NAME,
        task_timeout_s=LIMIT_S,
        on_worker_death=on_worker_death,
    ) as worker:
        numbers = worker.shared_array((4,), np.int64)
        handle = worker.register(lambda args: np.add(args.tensor(0), 1, out=args.tensor(0)))

        def addition(orch: Any, args: Any, config: Any) -> None:
            given = TaskArgs()
            given.add_tensor(numbers, TensorArgType.INOUT)
            orch.submit_sub(handle, given)

        worker.run(addition)
        if on_worker_death == "fail":
            with pytest.raises(ChildHungError, match=limit):
                worker.run(addition)
        worker.run(addition)
        assert numbers.tolist() == [2] * 4
        assert worker.statistics()["deaths"] == 1
