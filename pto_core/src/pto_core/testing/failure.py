"""The error for a broken contract."""

from __future__ import annotations


class ContractError(AssertionError):
    """A plugin breaks a contract. The message has the rule, the values and the seed."""


def expect(condition: object, message: str) -> None:
    """Raise :class:`ContractError` with ``message`` unless ``condition`` holds."""
    if not condition:
        raise ContractError(message)
