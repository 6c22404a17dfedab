"""The backend interface: a platform that runs kernels.

A complete backend::

    from pathlib import Path
    from pto_core.interfaces import API_VERSION, Health, KernelToolchain, Option

    class MyChip:
        name = "mychip"
        api_version = API_VERSION
        capabilities = frozenset({"threads"})

        def health(self) -> Health:
            return Health(ok=True)

        def library(self) -> Path:
            return Path(__file__).with_name("libpto_backend_mychip.so")

        def kernel_toolchain(self, core_type: str) -> KernelToolchain:
            return KernelToolchain()

        def options(self) -> tuple[Option, ...]:
            return ()

    plugin = MyChip()

with ``[project.entry-points."pto.backends"] mychip = "pto_backend_mychip:plugin"``.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from pto_core.interfaces.plugin import Option, Plugin


@dataclass(frozen=True)
class KernelToolchain:
    """The recipe that compiles a C++ kernel for one core type.

    ``compilers``: the commands to try in order after ``$CXX``; if empty, the host compilers.
    ``standard``: the value of ``-std=``. ``flags``: all other flags, in order; the toolchain adds
    the include paths of the runtime variant. The result is a shared library that exports
    ``kernel_entry``.
    """

    compilers: tuple[str, ...] = ()
    standard: str = "c++23"
    flags: tuple[str, ...] = ()
    definitions: tuple[str, ...] = ()


@runtime_checkable
class Backend(Plugin, Protocol):
    """A platform. Its native library, whose path :meth:`library` returns, implements the devices.

    The capabilities are any of ``threads``, ``deterministic``, ``checking`` and ``callbacks``
    (Python kernels).
    """

    def library(self) -> Path:
        """Return the path of the native library that exports ``pto_backend_entry``."""

    def kernel_toolchain(self, core_type: str) -> KernelToolchain:
        """Return the recipe for kernels of the core type ``"aic"`` or ``"aiv"``."""

    def options(self) -> tuple[Option, ...]:
        """List the settings of this backend."""
