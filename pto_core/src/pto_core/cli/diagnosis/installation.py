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
from pto_core.plugins import inspect_all
from pto_core.plugins.advice import install
from pto_core.toolchain.packages import python_headers_advice

LAPTOP_SET = (("backend", "a2a3sim"), ("runtime", "host_build_graph"))
FOR_WORKERS = (("transport", "shm"),)
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
    yield from _plugins(config["backend"])
    for module, purpose in _OPTIONAL.items():
        there = importlib.util.find_spec(module) is not None
        detail = "installed" if there else f"not installed; it adds {purpose}"
        yield Finding(module, there, False, detail, f"pip install {module}")


def _plugins(backend: str) -> Iterator[Finding]:
    """Report all plugins. The simulator and the chosen backend are required."""
    found = inspect_all()
    all_required = (*LAPTOP_SET, ("backend", backend))
    for family, name in (*LAPTOP_SET, *FOR_WORKERS):
        if not any(f.record.family == family and name in f.record.names for f in found):
            required = (family, name) in LAPTOP_SET
            detail = "not installed" if required else "not installed; a Worker needs it"
            yield Finding(f"{family} {name}", False, required, detail, install())
    for each in found:
        record = each.record
        required = any((record.family, name) in all_required for name in record.names)
        detail = each.health.reason
        if each.health.ok:
            detail = f"{record.source}, {each.health.label}".removesuffix(", ")
        name = f"{record.family} {record.name}"
        yield Finding(name, each.health.ok, required, detail, each.health.fix)
