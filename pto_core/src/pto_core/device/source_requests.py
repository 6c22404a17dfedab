"""The build requests of the C++ sources of a chip, for one backend and one runtime."""

from __future__ import annotations

from pathlib import Path

from pto_core.interfaces import Backend, Runtime
from pto_core.kernels import CoreCallable, KernelSource, OrchestrationSource
from pto_core.toolchain import BuildRequest, Toolchain


class SourceRequests:
    """Makes the request for a source, with the flags and headers of backend and runtime."""

    def __init__(self, toolchain: Toolchain, backend: Backend, runtime: Runtime) -> None:
        self._toolchain = toolchain
        self._backend = backend
        self._runtime = runtime

    def kernel(self, kernel: CoreCallable) -> BuildRequest:
        """Return the request for a kernel whose binary is a KernelSource."""
        assert isinstance(kernel.binary, KernelSource)
        core = kernel.core_type.name.lower()
        return self._toolchain.kernel(
            kernel.binary.path,
            core,
            self._backend.kernel_toolchain(core),
            self._runtime.kernel_include_dirs(),
            kernel.binary.options,
        )

    def orchestration(self, source: OrchestrationSource) -> BuildRequest:
        """Return the request for an orchestration; raises UsageError without a function name."""
        return self._toolchain.orchestration(
            source.path,
            source.function_name,
            self._runtime.orchestration_build(),
            source.options,
        )

    def installed_folders(self) -> set[Path]:
        """Return the folders of headers that come with the backend and the runtime."""
        build = self._runtime.orchestration_build()
        return {*self._runtime.kernel_include_dirs(), *build.include_dirs, build.wrapper.parent}
