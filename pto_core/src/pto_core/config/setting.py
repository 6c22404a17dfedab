"""One setting, and how its value is parsed."""

from __future__ import annotations

import numbers
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pto_core.errors import ConfigError
from pto_core.errors.suggestion import suggestion
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
    try:
        value = option.parse(_as_text(entry.raw))
    except ValueError as error:
        raise ConfigError(
            f"{entry.key} = {entry.raw!r} ({entry.origin}): expected {error}",
            name=entry.key,
            value=entry.raw,
            expected=str(error),
            origin=entry.origin,
        ) from None
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
    return ConfigError(f"unknown setting {key!r} ({origin}){hint}", name=key, origin=origin)


def given(values: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the values without keys whose value is None, because None means "not set"."""
    return {key: value for key, value in (values or {}).items() if value is not None}


def _as_text(raw: Any) -> str:
    """Convert a TOML or Python value to the text that parsers accept."""
    if isinstance(raw, bool):
        return "true" if raw else "false"
    if isinstance(raw, str | Path):
        return str(raw)
    if isinstance(raw, numbers.Real):  # also a number of NumPy
        return str(int(raw) if isinstance(raw, numbers.Integral) else float(raw))
    if isinstance(raw, list | tuple):
        return ",".join(map(_as_text, raw))
    raise ValueError("a text, a number, true or false, or a list of such values")
