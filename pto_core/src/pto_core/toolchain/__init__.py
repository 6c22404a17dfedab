"""Convert C++ sources to shared libraries: compilers, flags and the cache of artefacts.

Importing this package imports none of its modules; each name is loaded when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pto_core.toolchain.compilers import (
        HOST_COMPILERS,
        BuildRequest,
        Compiler,
        candidates,
        find_compiler,
    )
    from pto_core.toolchain.toolchain import (
        KERNEL_ENTRY,
        BuildEvent,
        Toolchain,
        device_options,
        orchestration_recipe,
        program_interface,
        recipe_of,
        runtime_artefacts,
    )

__all__ = [
    "HOST_COMPILERS",
    "KERNEL_ENTRY",
    "BuildEvent",
    "BuildRequest",
    "Compiler",
    "Toolchain",
    "candidates",
    "device_options",
    "find_compiler",
    "orchestration_recipe",
    "program_interface",
    "recipe_of",
    "runtime_artefacts",
]

_MODULES = {
    "compilers": ("HOST_COMPILERS", "BuildRequest", "Compiler", "candidates", "find_compiler"),
    "toolchain": (
        *("KERNEL_ENTRY", "BuildEvent", "Toolchain"),
        *("device_options", "orchestration_recipe", "program_interface", "recipe_of"),
        "runtime_artefacts",
    ),
}


def __getattr__(name: str) -> Any:
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
