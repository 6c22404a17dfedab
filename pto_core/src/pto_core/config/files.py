"""The settings file: ``pto.toml``, or ``[tool.pto]`` in ``pyproject.toml``."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pto_core.config.setting import Entry
from pto_core.errors import ConfigError
from pto_core.trust import reason_for_distrust

_TABLE = re.compile(r"\s*\[\s*([^\[\]]+?)\s*\]\s*(?:#.*)?$")
_KEY = re.compile(r"""\s*([\w.\-"' ]+?)\s*=""")


@dataclass(frozen=True)
class _File:
    path: Path
    shown: str
    """The path in messages: relative to the current folder."""
    text: str


def file_entries(cwd: Path) -> list[Entry]:
    """Return the entries of the nearest settings file; an empty list if there is none."""
    for folder in (cwd, *cwd.parents):
        own = _read(folder / "pto.toml", cwd)
        if own is not None:
            _check_trust(own)
            return _entries(own, _parse(own), prefix="")
        shared = _read(folder / "pyproject.toml", cwd)
        if shared is not None and "tool.pto" in shared.text:
            _check_trust(shared)
            table = _parse(shared).get("tool", {}).get("pto")
            if table is not None:
                return _entries(shared, table, prefix="tool.pto.")
    return []


def _read(path: Path, cwd: Path) -> _File | None:
    try:
        if not path.is_file():
            return None
    except PermissionError:  # a folder that this user cannot search has no settings for this user
        return None
    shown = os.path.relpath(path, cwd)
    try:
        return _File(path, shown, path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{shown} cannot be read: {error}", origin=shown) from None


def _check_trust(file: _File) -> None:
    reason = reason_for_distrust(file.path)
    if reason is not None:
        raise ConfigError(
            f"the settings file {file.shown} is not used: {reason}",
            value=str(file.path),
            origin=file.shown,
        )


def _parse(file: _File) -> dict[str, Any]:
    try:
        return tomllib.loads(file.text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        line = re.search(r"line (\d+)", str(error))
        where = f"{file.shown}:{line[1]}" if line else file.shown
        raise ConfigError(f"{where} is not valid TOML: {error}", origin=where) from None


def _entries(file: _File, table: Mapping[str, Any], prefix: str) -> list[Entry]:
    lines = _lines_of_keys(file.text)

    def origin(key: str) -> str:
        line = lines.get(prefix + key)
        return f"{file.shown}:{line}" if line else file.shown

    flat = _flatten(table, "")
    return [Entry(key, raw, origin(key), file.path.parent) for key, raw in flat]


def _flatten(table: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def _lines_of_keys(text: str) -> dict[str, int]:
    """Find the line number of each ``key =``, because tomllib does not report line numbers.

    The result may be wrong, because a multi-line text can contain a line that looks like a key. It
    is used only in messages.
    """
    lines: dict[str, int] = {}
    table = ""
    for number, line in enumerate(text.splitlines(), start=1):
        if header := _TABLE.match(line):
            table = _plain(header[1]) + "."
        elif key := _KEY.match(line):
            lines.setdefault(table + _plain(key[1]), number)
    return lines


def _plain(key: str) -> str:
    return ".".join(part.strip().strip("\"'") for part in key.split("."))
