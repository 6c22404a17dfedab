"""Test a C++ orchestration that includes the headers of this variant."""

from pathlib import Path

import numpy as np
import pytest

import pto_core
from pto_core import ChipCallable, CoreCallable, Direction
from pto_core.errors import OrchestrationError
from pto_core.kernels import OrchestrationSource

GRAPH = Path(__file__).with_name("graph.cpp")
ARRAYS = (
    Direction.IN(np.float32, (64,)),
    Direction.OUT(np.float32, (64,)),
    Direction.SCALAR(int),
)


def twice(source: np.ndarray, target: np.ndarray, count: int) -> None:
    """Double each element."""
    np.multiply(source, 2, out=target)


def plus_one(source: np.ndarray, target: np.ndarray, count: int) -> None:
    """Add one to each element."""
    np.add(source, 1, out=target)


KERNELS = {0: CoreCallable(twice, "aiv", ARRAYS), 1: CoreCallable(plus_one, "aiv", ARRAYS)}


def run(graph: Path) -> np.ndarray:
    """Run the C++ orchestration ``graph`` on the array 0, 1, 2, ... and return its output."""
    source, target = np.arange(64, dtype=np.float32), np.zeros(64, np.float32)
    chip = ChipCallable(OrchestrationSource(graph, "build"), KERNELS)
    with pto_core.open_device("a2a3sim", runtime="template") as device:
        device.run(chip, source, target, 64)
    return target


def test_the_graph_gives_the_sequential_answer() -> None:
    assert (run(GRAPH) == np.arange(64) * 2 + 1).all()


def test_what_an_orchestration_throws_is_reported(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.cpp"
    wrong.write_text(
        '#include "runtime.h"\n#include <stdexcept>\n'
        'extern "C" int build(Runtime*) { throw std::runtime_error("no luck"); }\n'
    )
    with pytest.raises(OrchestrationError, match="no luck"):
        run(wrong)
