"""Check Python, the plugins that the simulator needs, and optional packages."""

from __future__ import annotations

import importlib.util
import platform
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from pto_core.cli.diagnosis.finding import Finding
from pto_core.config import Config
from pto_core.plugins import inspect_all, installation
from pto_core.toolchain.packages import python_headers_advice

_OPTIONAL = {"torch": "tensors of torch as inputs", "numba": "Python kernels without the GIL"}


def examine(config: Config) -> Iterator[Finding]:
    """Check the Python interpreter and its installed packages."""
    header = Path(sysconfig.get_path("include")) / "Python.h"
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    yield Finding("Python", True, True, f"{platform.python_version()} at {sys.executable}")
    yield Finding(
        "Python headers",
        header.is_file(),
        False,
        str(header.parent) if header.is_file() else f"{header} does not exist",
        f"{python_headers_advice(version)}; needed only to build from source",
    )
    yield from _plugins(config)
    for module, purpose in _OPTIONAL.items():
        there = importlib.util.find_spec(module) is not None
        detail = "installed" if there else f"not installed; it adds {purpose}"
        yield Finding(module, there, False, detail, f"pip install {module}")


def _plugins(config: Config) -> Iterator[Finding]:
    """Report all plugins. The chosen backend and runtime are required."""
    found = inspect_all()
    for family, purpose in (("backend", ""), ("runtime", ""), ("transport", "; a Worker needs it")):
        name = config[family]
        if not any(f.record.family == family and name in f.record.names for f in found):
            fix = installation(family, name) or f"choose another with --set {family}=NAME"
            yield Finding(f"{family} {name}", False, not purpose, f"not installed{purpose}", fix)
    for each in found:
        record = each.record
        is_level_2 = record.family in ("backend", "runtime")
        required = is_level_2 and config[record.family] in record.names
        detail = each.health.reason
        if each.health.ok:
            detail = f"{record.source}, {each.health.label}".removesuffix(", ")
        name = f"{record.family} {record.name}"
        yield Finding(name, each.health.ok, required, detail, each.health.fix)
