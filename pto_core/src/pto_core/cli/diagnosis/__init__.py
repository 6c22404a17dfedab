"""The checks of ``pto doctor``, one module for each part of the machine."""

from __future__ import annotations

from pto_core.cli.diagnosis import compilers, installation, system
from pto_core.cli.diagnosis.finding import Finding
from pto_core.config import Config

__all__ = ["Finding", "examine"]


def examine(config: Config) -> list[Finding]:
    """Run all checks. They write no files except the cache of compiler versions."""
    return [
        *compilers.examine(config),
        *installation.examine(config),
        *system.examine(config),
    ]
