"""Read settings once into a frozen record that knows the origin of each value.

Precedence, strongest first: argument, ``--set key=value``, the case, environment, file, default.
The file is the first ``pto.toml``, or ``pyproject.toml`` with a ``[tool.pto]`` table, from the
current folder upwards. No other module reads environment variables.

A key without a dot belongs to the core, one with a dot to a plugin; only the options of the chosen
backend and runtime are part of a record.
"""

from pto_core.config.environment import adopt_environment, child_environment
from pto_core.config.layers import load, load_core, load_with_plugins
from pto_core.config.options import core_options
from pto_core.config.record import Config
from pto_core.config.setting import Setting

__all__ = [
    "Config",
    "Setting",
    "adopt_environment",
    "child_environment",
    "core_options",
    "load",
    "load_core",
    "load_with_plugins",
]
