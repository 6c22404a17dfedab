"""Random numbers for checks, from seeds with which a failure can be repeated."""

from __future__ import annotations

import random
import secrets
from collections.abc import Iterator
from contextlib import contextmanager

from pto_devkit.failure import ContractError


@contextmanager
def random_numbers(seed: int | None) -> Iterator[random.Random]:
    """Provide a random generator; add its seed to the message of a check that fails in the block.

    If ``seed`` is None, a new seed is chosen.
    """
    chosen = secrets.randbits(32) if seed is None else seed
    try:
        yield random.Random(chosen)
    except ContractError as failure:
        raise ContractError(f"{failure} (seed={chosen})") from failure
