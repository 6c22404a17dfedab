"""The diagnostics of ``CallConfig`` in the settings of a case."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from pto_core.errors import UsageError
from pto_core.kernels import CallConfig

_NAMES = frozenset(
    field.name
    for field in fields(CallConfig)
    if field.name.startswith("enable_") or field.name == "output_prefix"
)


def without_diagnostics(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings without the diagnostics.

    Raises UnsupportedError for a diagnostic that is switched on and not implemented yet, and
    UsageError for an invalid value.
    """
    given = {name: _value(name, values[name]) for name in _NAMES & values.keys()}
    CallConfig(**given).pack()
    return {name: value for name, value in values.items() if name not in _NAMES}


def texts_without_diagnostics(texts: tuple[str, ...]) -> tuple[str, ...]:
    """Apply :func:`without_diagnostics` to ``key=value`` texts."""
    pairs = dict(text.split("=", 1) for text in texts if "=" in text)
    without_diagnostics(pairs)
    return tuple(text for text in texts if text.partition("=")[0].strip() not in _NAMES)


def diagnostics_of(
    settings: Mapping[str, Any], texts: tuple[str, ...], case: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the diagnostics of a case as arguments of CallConfig; arguments win over ``case``."""
    pairs = dict(text.split("=", 1) for text in texts if "=" in text)
    given = {**case, **pairs, **settings}
    return {name: _value(name, given[name]) for name in _NAMES & given.keys()}


def _value(name: str, raw: Any) -> Any:
    if name == "output_prefix" or not isinstance(raw, str):
        return raw
    try:
        return int(raw)
    except ValueError:
        raise UsageError(
            f"{name} is {raw!r}; expected a number", name=name, value=raw, expected="a number"
        ) from None
