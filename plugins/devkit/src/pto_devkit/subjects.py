"""The subject of a check: a backend, or a runtime with a backend, found by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pto_core import plugins
from pto_core.config import load as load_config, load_with_plugins
from pto_core.interfaces import Backend, BuildRecipe, DeviceBuild, Runtime, abi_include_dir
from pto_core.plugins import install
from pto_core.toolchain import Toolchain, device_options, recipe_of, runtime_artefacts
from pto_devkit import abi
from pto_devkit.checks import ContractError
from pto_devkit.native import Kernel, NativeBackend, NativeDevice, NativeRuntime

_SOURCES = Path(__file__).parent.resolve() / "kernels"
_PROBE = Path(__file__).parent.resolve() / "probe.cpp"

RECORDER_AIC = 0
"""The func_id of the recorder kernel on AIC cores."""
RECORDER_AIV = 1
"""The func_id of the recorder kernel on AIV cores."""


@dataclass
class BackendSubject:
    """A backend under test."""

    name: str
    plugin: Backend
    native: NativeBackend
    settings: Mapping[str, str] = field(default_factory=dict)
    _kernels: dict[tuple[str, abi.Core], Path] = field(default_factory=dict)
    _probe_files: list[Path] = field(default_factory=list)

    @classmethod
    def load(cls, name: str) -> BackendSubject:
        """Find the backend by name, as users do. Raises an error if it is not healthy."""
        plugin = plugins.load_backend(name)
        config = load_with_plugins({"backend": name})
        settings = device_options(Toolchain(config), plugin, config.native_options_of(plugin))
        return cls(plugin.name, plugin, NativeBackend(plugin.library()), settings)

    def open(self, device_id: int = 0, **options: object) -> NativeDevice:
        """Open a device without a runtime. ``options`` override the settings of the plugin."""
        return self.native.open(device_id, **{**self.settings, **options})

    def kernel(self, source: str, core: abi.Core) -> Path:
        """Compile a kernel of the kit (``"recorder"``, ``"gate"``) with the backend's toolchain."""
        key = (source, core)
        if key not in self._kernels:
            core_type = core.name.lower()
            self._kernels[key] = Toolchain(load_config(None)).build_kernel(
                _SOURCES / f"{source}.cpp", core_type, recipe_of(self.plugin, core_type), ()
            )
        return self._kernels[key]

    def probe_files(self) -> tuple[Path, list[tuple[str, str]]]:
        """Build the probe; return its library for this process, and its artefacts for devices."""
        if not self._probe_files:
            build = DeviceBuild(sources=(_PROBE,), include_dirs=(abi_include_dir(),))
            toolchain = Toolchain(load_config(None))
            recipes = (BuildRecipe(), self.plugin.build_recipe("runtime"))
            self._probe_files = toolchain.build_many(
                [toolchain.runtime(build, recipe) for recipe in recipes if recipe is not None]
            )
        library, *artefacts = self._probe_files
        return library, [("runtime", str(path)) for path in artefacts]

    def load_recorders(self, device: NativeDevice) -> list[Kernel]:
        """Load the recorder kernel for both core types; the index in the list is the func_id."""
        return [
            device.load_kernel(func_id, core, self.kernel("recorder", core))
            for func_id, core in ((RECORDER_AIC, abi.Core.AIC), (RECORDER_AIV, abi.Core.AIV))
        ]


@dataclass
class RuntimeSubject:
    """A runtime variant under test, and the backend that drives it."""

    name: str
    plugin: Runtime
    native: NativeRuntime
    backend: BackendSubject
    settings: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def load(cls, name: str, backend: str | None = None) -> RuntimeSubject:
        """Find the variant by name. Without ``backend``, use the first healthy backend."""
        plugin = plugins.load_runtime(name)
        subject = BackendSubject.load(backend or healthy_backend())
        toolchain = Toolchain(load_config(None))
        artefacts = runtime_artefacts(toolchain, subject.plugin, plugin)
        native = NativeRuntime(plugin.library(), plugin.name, artefacts)
        config = load_with_plugins({"backend": subject.name, "runtime": name})
        return cls(plugin.name, plugin, native, subject, config.native_options_of(plugin))

    def attach(self, device: NativeDevice, **options: object) -> None:
        """Attach the variant to a device. ``options`` override the settings of the plugin."""
        device.attach(self.native, **{**self.settings, **options})

    def has_submits(self) -> bool:
        """Return whether the caller can submit tasks, as the table that attach() returns states.

        Otherwise only an orchestration submits, which the backend runs on the device.
        """
        if not self.native.artefacts:
            return True
        with self.backend.open() as device:
            self.attach(device)
            return bool(device.runtime_table.submit or device.runtime_table.submit_tensors)


def healthy_backend() -> str:
    """Return the name of the first installed backend that is usable on this machine."""
    reasons = []
    for record in plugins.installed("backend"):
        health = plugins.inspect(record).health
        if health.ok:
            return record.name
        reasons.append(f"{record.name}: {health.reason}")
    raise ContractError(
        f"no backend can be used here ({'; '.join(reasons) or 'none is installed'}); for the "
        f"simulator, {install('ptorun-backend-sim')}"
    )
