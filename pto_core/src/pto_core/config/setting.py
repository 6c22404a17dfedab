"""One setting, and how its value is parsed."""

from __future__ import annotations

import contextlib
import numbers
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pto_core.errors import ConfigError
from pto_core.errors.suggestion import suggestion
from pto_core.errors.values import shown
from pto_core.interfaces.plugin import Option


@dataclass(frozen=True)
class Setting:
    """One value, its option, and its origin.

    ``origin`` is a readable text: ``"argument"``, ``"environment PTO_BACKEND"``, ``"pto.toml:3"``,
    ``"default"``, ...
    """

    option: Option
    value: Any
    origin: str

    @property
    def key(self) -> str:
        """The dotted name."""
        return self.option.key

    @property
    def is_argument(self) -> bool:
        """Whether the program passed the value."""
        return self.origin == "argument"


@dataclass(frozen=True)
class Entry:
    """The raw, unchecked value of a key, and the source that contains it.

    Relative paths in the value are relative to ``folder``.
    """

    key: str
    raw: Any
    origin: str
    folder: Path


def read_setting(option: Option, entry: Entry) -> Setting:
    """Parse ``entry``. Raises :class:`ConfigError` if the option does not accept the value."""
    text = as_text(entry.key, entry.raw, entry.origin)
    try:
        value = option.parse(text)
    except ValueError as error:
        raise _wrong(entry.key, entry.raw, entry.origin, str(error)) from None
    if isinstance(value, Path) and not value.is_absolute():
        value = entry.folder / value
    return Setting(option, value, entry.origin)


def unknown_setting(key: str, known: Iterable[str], origin: str, why: str = "") -> ConfigError:
    """Return the error for an unknown key."""
    otherwise = (
        "; no installed plugin has this setting"
        if "." in key
        else "; `pto config` lists all settings"
    )
    hint = why or suggestion(key, known) or otherwise
    return ConfigError(f"unknown setting {shown(key)} ({origin}){hint}", name=key, origin=origin)


def given(values: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the values without keys whose value is None, because None means "not set"."""
    if values is None:
        return {}
    if not isinstance(values, Mapping) or not all(isinstance(key, str) for key in values):
        raise ConfigError(
            f"the settings are {shown(values)}; pass a dict whose keys are texts",
            name="settings",
            value=values,
        )
    return {key: value for key, value in values.items() if value is not None}


def as_text(key: str, raw: Any, origin: str) -> str:
    """Return the text of a TOML or Python value. Raises ConfigError for a value without one."""
    try:
        return _text(raw)
    except ValueError as error:
        raise _wrong(key, raw, origin, str(error)) from None


def _wrong(key: str, raw: Any, origin: str, expected: str) -> ConfigError:
    return ConfigError(
        f"{key} = {shown(raw)} ({origin}): expected {expected}",
        name=key,
        value=raw,
        expected=expected,
        origin=origin,
    )


def _text(raw: Any) -> str:
    """Convert a TOML or Python value to the text that parsers accept."""
    if isinstance(raw, bool):
        return "true" if raw else "false"
    if isinstance(raw, str | Path):
        return str(raw)
    if isinstance(raw, numbers.Real):  # also a number of NumPy
        with contextlib.suppress(ArithmeticError, ValueError):  # beyond float, or of many digits
            return str(int(raw) if isinstance(raw, numbers.Integral) else float(raw))
    if isinstance(raw, list | tuple) and not any(isinstance(one, list | tuple) for one in raw):
        return ",".join(map(_text, raw))
    raise ValueError("a text, a number, true or false, or a list of such values")
