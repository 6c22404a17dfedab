"""How a check says that a contract is broken."""

from __future__ import annotations


class ContractError(AssertionError):
    """A plugin breaks a contract. The message gives the rule, the numbers and the seed."""


def expect(condition: object, message: str) -> None:
    """Raise :class:`ContractError` with ``message`` unless ``condition`` holds."""
    if not condition:
        raise ContractError(message)
