"""The check before a chip is forked."""

from __future__ import annotations

from pto_core import plugins
from pto_core.config import Config
from pto_core.errors import UsageError
from pto_core.interfaces import ForkSensitiveBackend


def refuse_fork_with_vendor_libraries(config: Config) -> None:
    """Raise UsageError if this process has loaded libraries that a forked chip cannot use."""
    backend = plugins.load_unopened("backend", config["backend"])
    loaded = backend.loaded_libraries() if isinstance(backend, ForkSensitiveBackend) else ()
    if not loaded:
        return
    raise UsageError(
        f"this process has loaded {loaded[0]}, which does not work in a forked process, so chips "
        f"of the backend {config['backend']!r} cannot be forked; use start_method='spawn', or "
        "start the Worker in a process that has not loaded the library",
        name="start_method",
        value="fork",
        expected="spawn",
    )
