"""Read the settings once into an immutable record that knows the origin of each value.

The sources in order of precedence, strongest first: argument, ``--set key=value``, the case,
environment, file, default. The file is the first ``pto.toml``, or ``pyproject.toml`` with a
``[tool.pto]`` table, in the current folder or one of its parents. No other module reads environment
variables.

A key without a dot belongs to the core; a key with a dot belongs to a plugin. A record contains
only the settings of the core and of the chosen backend and runtime.
"""

from pto_core.config.environment import adopt_environment, child_environment
from pto_core.config.layers import check_plugin_names, load, load_core, load_with_plugins
from pto_core.config.options import core_options
from pto_core.config.record import Config
from pto_core.config.setting import Setting

__all__ = [
    "Config",
    "Setting",
    "adopt_environment",
    "check_plugin_names",
    "child_environment",
    "core_options",
    "load",
    "load_core",
    "load_with_plugins",
]
