"""The backend interface: a platform that runs kernels.

``pto new plugin backend NAME`` writes a small one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, runtime_checkable

from pto_core.errors import PtoError
from pto_core.interfaces.plugin import Option, Plugin
from pto_core.interfaces.runtime import DeviceBuild

KINDS = ("aic", "aiv", "orchestration", "host_orchestration", "runtime")
"""The kinds of code that a backend names recipes for; :meth:`Backend.build_recipe` lists them."""


@dataclass(frozen=True)
class BuildRecipe:
    """The recipe that compiles code of one kind to a shared library or a device binary.

    ``compilers``: the commands to try in order. If empty, the code runs on the host: the recipe
    uses ``$CXX`` or the host compilers, and ``-shared -fPIC`` is added to its flags. ``standard``:
    the value of ``-std=``; None takes that of the variant for orchestrations and runtimes, and
    c++23 for kernels. ``flags``: all other flags, in order; the toolchain adds those of the variant
    and the include paths. ``definitions``: macros, as ``NAME`` or ``NAME=VALUE``.

    ``steps``: commands that run after the compiler, such as a linker and an extractor. Each word
    may contain ``{input}``, the result of the command before, ``{output}``, and ``{folder}``, a
    folder for other temporary files of the build; the last command must write ``{output}``.
    ``keeps_attributes``: whether the compiler knows the attributes of the device language, such as
    ``[aicore]``. Otherwise they are removed from the source. ``ceilings``: for libraries that the
    device provides, the newest version of their symbols, such as ``{"GLIBC": "2.17"}``. Code that
    needs a newer version is refused. ``measured_flags``: the flags that are added to build a kernel
    that reports its accesses to memory; empty if the backend cannot measure accesses.
    """

    compilers: tuple[str, ...] = ()
    standard: str | None = None
    flags: tuple[str, ...] = ()
    definitions: tuple[str, ...] = ()
    steps: tuple[tuple[str, ...], ...] = ()
    keeps_attributes: bool = False
    ceilings: Mapping[str, str] = field(default_factory=dict)
    measured_flags: tuple[str, ...] = ()


@runtime_checkable
class Backend(Plugin, Protocol):
    """A platform. Its native library, whose path :meth:`library` returns, implements the devices.

    The capabilities are any of ``threads``, ``deterministic``, ``checking``, ``callbacks`` (Python
    kernels), ``planning`` (after a deadlock the runtime may find the sizes that suffice),
    ``activity`` (the activity page shows the running kernels), ``dump`` (runs write the arguments
    of kernels to a file, ``pto/abi/dump.h``) and ``streams`` (a run can wait for a stream of
    another program).
    """

    def library(self) -> Path:
        """Return the path of the native library that exports ``pto_backend_entry``."""

    def build_recipe(self, kind: str) -> BuildRecipe | None:
        """Return the recipe for code of one kind.

        ``aic`` and ``aiv``: kernels for the two types of cores. ``orchestration``: an orchestration
        that runs beside the runtime variant. ``host_orchestration``: one that runs in the host
        process, as for ``host_build_graph``. ``runtime``: the sources of a runtime variant; None
        if the backend runs the variant's library in the host process. Raises ValueError for
        another kind.
        """

    def options(self) -> tuple[Option, ...]:
        """List the settings of this backend."""


@dataclass(frozen=True)
class DeviceLibrary:
    """A library of a backend that runs on its devices. The core builds it when it is first needed.

    ``option``: the native option of the backend that receives the path of the built library.
    ``entry``: a function that the library must export; empty if it is no shared library.
    ``recipe``: as for the kind ``runtime``.
    """

    option: str
    entry: str
    build: DeviceBuild
    recipe: BuildRecipe


@runtime_checkable
class DeviceBackend(Backend, Protocol):
    """A backend whose wheel has the sources of the libraries that run on its devices."""

    def device_libraries(self, options: Mapping[str, str]) -> Sequence[DeviceLibrary]:
        """List the libraries that a device needs before a run; the core calls this at each open.

        ``options``: the settings of this backend, by their native keys. A setting that names built
        libraries can make the list empty.
        """


@dataclass(frozen=True)
class CardStage:
    """One stage of the check of a card: what it found, or its error.

    ``label`` states what was used: "device", or for tests a substitute such as "fake device".
    """

    name: str
    label: str = "unknown"
    found: str = ""
    error: PtoError | None = None


@runtime_checkable
class CardBackend(Backend, Protocol):
    """A backend that can check a card; ``pto doctor --card`` uses it."""

    def check_card(self, device: int, options: Mapping[str, str]) -> Sequence[CardStage]:
        """Try the card in stages. Return at least one stage; only the last may have an error.

        ``options``: the settings of this backend, by their native keys. The check may take minutes.
        It loads no library of a vendor into this process.
        """


@runtime_checkable
class ForkSensitiveBackend(Backend, Protocol):
    """A backend whose vendor's libraries do not work in a forked process."""

    def loaded_libraries(self) -> Sequence[str]:
        """Return the paths of the vendor's libraries that this process has loaded.

        A Worker calls it in the process that is going to fork a chip, before the fork. If there is
        such a library, the Worker is refused.
        """


@runtime_checkable
class TensorSharingBackend(Backend, Protocol):
    """A backend that shares device memory with a tensor library in the same process.

    A run accepts the library's tensors on its device by DLPack, without a copy.
    ``dlpack_device_type``: their ``DLDeviceType``; their ``device_id`` is the number of the device.
    ``stream_attribute``: the attribute of the library's stream objects that contains the vendor's
    handle as an int. With the capability ``streams``, a run can wait for such a stream.
    """

    dlpack_device_type: int
    stream_attribute: str
