"""Reproducible random checks."""

from __future__ import annotations

import random
import secrets
from collections.abc import Iterator
from contextlib import contextmanager

from pto_core.testing.failure import ContractError


@contextmanager
def random_numbers(seed: int | None) -> Iterator[random.Random]:
    """Return a generator. A check that fails inside the context names the reproducing seed.

    ``None`` selects a new seed each time.
    """
    chosen = secrets.randbits(32) if seed is None else seed
    try:
        yield random.Random(chosen)
    except ContractError as failure:
        raise ContractError(f"{failure} (seed={chosen})") from failure
