"""The installation commands in messages.

Our distributions are on no public index, and a stranger could publish a package under any of their
names. So every message names commands that install from local files only.
"""

from __future__ import annotations

OUR_PREFIX = "ptorun-"


def install(requirement: str = "'ptorun-core[sim]'", options: str = "") -> str:
    """Return the commands that build our wheels in a checkout and install ``requirement``."""
    return (
        "run `./quickstart wheels DIR` in a checkout of pto, then "
        f"`pip install --no-index --find-links DIR {options}{requirement}`"
    )


def reinstall(distribution: str) -> str:
    """Return how to replace an installed distribution that is damaged or does not fit."""
    if distribution.startswith(OUR_PREFIX):
        return install(f"{distribution} ptorun-core", "--no-deps --force-reinstall ")
    return f"install a version of {distribution} for this core, from where you obtained it"
