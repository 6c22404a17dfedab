"""Collect only the tests for capabilities that the plugin claims."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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
