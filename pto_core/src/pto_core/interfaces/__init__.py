"""The interfaces that plugins implement.

A plugin is an object (usually an instance of a small class, at module level) that an entry point
names: group ``pto.backends``, ``pto.runtimes``, ``pto.transports`` or ``pto.commands``; the entry
point's name is the name users select it by, and a second entry point on the same object is an alias.
"""

from pto_core.interfaces.backend import Backend, KernelToolchain
from pto_core.interfaces.plugin import API_VERSION, Health, Option
from pto_core.interfaces.runtime import OrchestrationBuild, Runtime

__all__ = [
    "API_VERSION",
    "Backend",
    "Health",
    "KernelToolchain",
    "Option",
    "OrchestrationBuild",
    "Runtime",
]
