"""Create the build requests for the C++ sources of a chip, for one backend and one runtime."""

from __future__ import annotations

from pathlib import Path

from pto_core.interfaces import Backend, Runtime
from pto_core.kernels import CoreCallable, KernelSource, OrchestrationSource
from pto_core.toolchain import BuildRequest, Toolchain, orchestration_recipe, recipe_of


class SourceRequests:
    """Creates build requests for sources, with the flags and headers of backend and runtime."""

    def __init__(self, toolchain: Toolchain, backend: Backend, runtime: Runtime) -> None:
        self._toolchain = toolchain
        self._backend = backend
        self._runtime = runtime

    def kernel(self, kernel: CoreCallable) -> BuildRequest:
        """Return the build request for a kernel that is given as a KernelSource."""
        assert isinstance(kernel.binary, KernelSource)
        core = kernel.core_type.name.lower()
        return self._toolchain.kernel(
            kernel.binary.path,
            core,
            recipe_of(self._backend, core),
            self._runtime.kernel_include_dirs(),
            kernel.binary.options,
        )

    def orchestration(self, source: OrchestrationSource) -> BuildRequest:
        """Return the build request for an orchestration."""
        return self._toolchain.orchestration(
            source.path,
            source.function_name,
            self._runtime.orchestration_build(),
            orchestration_recipe(self._backend, self._runtime),
            source.options,
        )

    def installed_folders(self) -> set[Path]:
        """Return the folders of the headers that the backend and the runtime provide."""
        build = self._runtime.orchestration_build()
        return {*self._runtime.kernel_include_dirs(), *build.include_dirs, build.wrapper.parent}
