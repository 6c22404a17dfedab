"""The error that reports a broken contract."""

from __future__ import annotations


class ContractError(AssertionError):
    """The plugin breaks its contract. The message contains the rule, the values and the seed."""


def expect(condition: object, message: str) -> None:
    """Raise :class:`ContractError` with ``message`` unless ``condition`` holds."""
    if not condition:
        raise ContractError(message)
