"""Compilers, flags and the cache of artefacts: C++ sources in, shared libraries out."""

from pto_core.toolchain.compilers import HOST_COMPILERS, Compiler, candidates, find_compiler
from pto_core.toolchain.request import BuildRequest
from pto_core.toolchain.toolchain import KERNEL_ENTRY, BuildEvent, Toolchain

__all__ = [
    "HOST_COMPILERS",
    "KERNEL_ENTRY",
    "BuildEvent",
    "BuildRequest",
    "Compiler",
    "Toolchain",
    "candidates",
    "find_compiler",
]
