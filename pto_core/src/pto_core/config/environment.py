"""The environment of the process. No other module reads or changes it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from pto_core.errors import UsageError

# Published variable names whose settings belong to plugins. No warning is issued for them, even if
# the plugin is not installed.
PUBLISHED = frozenset(
    {
        "PTO_AICPU_BUILD_GRAPH_BUILD_MODE",
        "PTO2_READY_QUEUE_SHARDS",
        "PTO2_RING_DEP_POOL",
        "PTO2_RING_HEAP",
        "PTO2_RING_TASK_WINDOW",
    }
)

# Variables that the golden.py of an example reads, with their meanings. They are no settings.
EXAMPLE_VARIABLES = {
    "PA_CASE": "case of 06_batch_paged_attention that runs without --case",
    "PA_SEQ_LEN": "lengths of its sequences, separated by commas, in place of those of the case",
}


def working_folder() -> Path:
    """Return the working folder of this process; raise UsageError if it was removed."""
    try:
        return Path.cwd()
    except FileNotFoundError:
        raise UsageError(
            "the working folder of this process was removed; change to a folder that exists",
            name="cwd",
        ) from None


def process_environment() -> Mapping[str, str]:
    """Return the environment of this process."""
    return os.environ


def child_environment(changes: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return a copy of this environment with ``changes``, for a child process.

    The environment of this process does not change.
    """
    return {**os.environ, **(changes or {})}


def adopt_environment(changes: Mapping[str, str]) -> None:
    """Set variables of this process. Only a child that runs one case may call this function."""
    os.environ.update(changes)


def unknown_variables(environ: Mapping[str, str], known: Iterable[str]) -> list[str]:
    """List the variables that start with ``PTO_`` or ``PTO2_`` and that no option reads."""
    expected = PUBLISHED | set(known)
    ours = (name for name in environ if name.startswith(("PTO_", "PTO2_")))
    return sorted(name for name in ours if name not in expected)
