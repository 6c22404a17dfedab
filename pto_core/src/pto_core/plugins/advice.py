"""The installation commands that messages recommend.

The distributions of pto are on no public index, and anyone could publish a package with such a name
there. Therefore every message recommends commands that install from local files only.
"""

from __future__ import annotations

OUR_PREFIX = "ptorun-"
_SIMULATOR = "'ptorun-core[sim]'"


def install(requirement: str = _SIMULATOR, options: str = "") -> str:
    """Return the commands that build wheels in a checkout and install ``requirement`` from them."""
    return (
        "run `./quickstart wheels DIR` in a checkout of pto, then "
        f"`pip install --no-index --find-links DIR {options}{requirement}`"
    )


def reinstall(distribution: str) -> str:
    """Return the advice for an installed distribution that is damaged or incompatible."""
    if distribution.startswith(OUR_PREFIX):
        return install(f"{distribution} ptorun-core", "--no-deps --force-reinstall ")
    return f"install a version of {distribution} for this core from its original source"
