"""Find, check and load plugins.

The records of plugins are read from the metadata of installed distributions, without importing a
plugin. Loading a plugin imports only that plugin. A plugin that is broken, duplicate, misspelt or
outdated causes an error that names the distribution and its version. It does not affect other
plugins.
"""

from pto_core.plugins.inspection import Inspection, inspect, inspect_all
from pto_core.plugins.loading import (
    canonical_name,
    load_backend,
    load_command,
    load_launcher,
    load_remote_transport,
    load_runtime,
    load_scheduler,
    load_transport,
    load_unopened,
    options_of_all,
)
from pto_core.plugins.manager import manager
from pto_core.plugins.observation import Observers, load_observers
from pto_core.plugins.records import (
    FAMILIES,
    PluginRecord,
    backends,
    commands,
    installed,
    launchers,
    observers,
    runtimes,
    schedulers,
    transports,
)

__all__ = [
    "FAMILIES",
    "Inspection",
    "Observers",
    "PluginRecord",
    "backends",
    "canonical_name",
    "commands",
    "inspect",
    "inspect_all",
    "installed",
    "launchers",
    "load_backend",
    "load_command",
    "load_launcher",
    "load_observers",
    "load_remote_transport",
    "load_runtime",
    "load_scheduler",
    "load_transport",
    "load_unopened",
    "manager",
    "observers",
    "options_of_all",
    "runtimes",
    "schedulers",
    "transports",
]
