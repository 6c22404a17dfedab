"""The functions of ``ptorun-insight``: graphs, race checks and traces.

``insight.write_trace(...)`` imports the package when it is used. Without the package, each name
raises a :class:`~pto_core.errors.PluginUnavailableError` that names the distribution to install.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pto_core.plugins import find, installed, load_record

if TYPE_CHECKING:
    from pto_insight.provider import *  # noqa: F403 - the names and types of the functions


def is_installed() -> bool:
    """Return whether there are graphs and traces here."""
    return bool(installed("insight"))


def require() -> None:
    """Raise PluginUnavailableError if the package is missing, and PluginError if it is unusable."""
    load_record(find("insight", "insight"))


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(load_record(find("insight", "insight")), name)
