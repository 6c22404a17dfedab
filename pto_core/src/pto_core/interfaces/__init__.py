"""The interfaces that plugins implement.

A plugin is an object (usually an instance of a small class, at module level) that an entry point
names: group ``pto.backends``, ``pto.runtimes``, ``pto.transports``, ``pto.commands`` or
``pto.observers``. The entry point's name is the name users select it by, and a second entry point
on the same object is an alias.
"""

from pto_core.interfaces import parse
from pto_core.interfaces.backend import Backend, KernelToolchain
from pto_core.interfaces.command import Command
from pto_core.interfaces.observer import CaseInfo, RunInfo
from pto_core.interfaces.plugin import (
    ABI_VERSION,
    API_VERSION,
    Health,
    Option,
    abi_include_dir,
)
from pto_core.interfaces.runtime import OrchestrationBuild, Runtime
from pto_core.interfaces.transport import (
    ChildEnd,
    Connection,
    NativeTransport,
    ParentEnd,
    PythonTransport,
    Transport,
)

__all__ = [
    "ABI_VERSION",
    "API_VERSION",
    "Backend",
    "CaseInfo",
    "ChildEnd",
    "Command",
    "Connection",
    "Health",
    "KernelToolchain",
    "NativeTransport",
    "Option",
    "OrchestrationBuild",
    "ParentEnd",
    "PythonTransport",
    "RunInfo",
    "Runtime",
    "Transport",
    "abi_include_dir",
    "parse",
]
