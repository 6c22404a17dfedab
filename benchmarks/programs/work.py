"""The functions that the programs call, and what each program must return."""

from __future__ import annotations

import functools
import time
from pathlib import Path
from typing import Any

import numpy as np

from pto_core import In

ITEMS = 1000
ROWS = 100  # of the pipeline
LEAVES = 97  # of the tree, which has 193 tasks
CALLS, CALL_S = 20, 0.05
PARTS = 4
ARRAY_BYTES = 100 << 20


def square(item: int) -> int:
    return item * item


def load(row: int) -> dict[str, Any]:
    return {"row": row, "words": ["to", "be", "or"] * row}


def clean(record: dict[str, Any]) -> dict[str, Any]:
    return {**record, "words": sorted(record["words"])}


def total(record: dict[str, Any]) -> int:
    return len(record["words"])


def add(left: int, right: int) -> int:
    return left + right


def fails_once(marker: str) -> int:
    """Fail in the first call with this path, which does not exist yet."""
    try:
        Path(marker).touch(exist_ok=False)
    except FileExistsError:
        return 1
    raise OSError("the first attempt")


def part_sum(array: In, part: int) -> int:
    """Return the sum of one of the equal parts of the array. Only pto reads the annotation."""
    size = array.size // PARTS
    return int(array[part * size : (part + 1) * size].sum())


def wait_a_little(number: int) -> int:
    time.sleep(CALL_S)
    return number


def echo(value: Any) -> Any:
    return value


@functools.cache
def whole_array() -> np.ndarray[Any, Any]:
    """Return the same array in each call."""
    return np.ones(ARRAY_BYTES // 8, np.int64)
