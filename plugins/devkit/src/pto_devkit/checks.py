"""The parts that the checks of all families share: broken contracts, random numbers, capabilities.

A check is a function of a subject. It raises :class:`ContractError` for a broken contract.
"""

from __future__ import annotations

import random
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


class ContractError(AssertionError):
    """The plugin breaks its contract. The message contains the rule, the values and the seed."""


def expect(condition: object, message: str) -> None:
    """Raise :class:`ContractError` with ``message`` unless ``condition`` holds."""
    if not condition:
        raise ContractError(message)


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


_ATTRIBUTE = "required_capabilities"


def contract_test(check: Callable[[Any], None], *requires: str) -> Callable[[Any], None]:
    """Return ``check`` as a test method for plugins that claim all of ``requires``.

    ``"!x"`` means that the plugin must not claim x. ``"backend:x"`` means that the backend that
    drives the tested runtime must claim x.
    """

    def test(self: Any) -> None:
        check(self.subject)

    # For a partial object, use the docstring of the wrapped function.
    test.__doc__ = getattr(check, "func", check).__doc__
    setattr(test, _ATTRIBUTE, requires)
    return test


def withdraw_unclaimed(contract: type, claimed: frozenset[str]) -> None:
    """Hide the tests of ``contract`` whose requirements ``claimed`` does not meet."""
    for name in dir(contract):
        needed: tuple[str, ...] = getattr(getattr(contract, name), _ATTRIBUTE, ())
        if not all(_holds(capability, claimed) for capability in needed):
            setattr(contract, name, None)


def keep_tests(contract: type, names: set[str]) -> None:
    """Hide all other tests of ``contract``."""
    for name in dir(contract):
        if name.startswith("test_") and name not in names:
            setattr(contract, name, None)


def _holds(capability: str, claimed: frozenset[str]) -> bool:
    if capability.startswith("!"):
        return capability[1:] not in claimed
    return capability in claimed
