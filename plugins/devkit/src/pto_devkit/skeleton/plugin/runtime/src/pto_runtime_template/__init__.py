"""The runtime variant ``template``: its library, and its recipe for orchestrations."""

from pathlib import Path

from pto_core.interfaces import (
    API_VERSION,
    DeviceBuild,
    Health,
    Option,
    OrchestrationBuild,
    ProgramInterface,
    abi_include_dir,
)

PACKAGE = Path(__file__).parent


class TemplateRuntime:
    """A variant that starts a task after all of its producers have completed."""

    name = "template"
    api_version = API_VERSION
    capabilities = frozenset({"explicit_edges"})

    def health(self) -> Health:
        """Return whether the variant works on this machine."""
        if self.library().is_file():
            return Health(ok=True)
        return Health(
            ok=False,
            reason=f"{self.library()} is missing",
            fix="install the folder of this plugin again",
        )

    def library(self) -> Path:
        """Return the path of the native library that exports ``pto_runtime_entry``."""
        return PACKAGE / "libpto_runtime_template.so"

    def device_build(self) -> DeviceBuild:
        """Return the sources of the library, for a build for the processor of a device."""
        native = PACKAGE / "native"
        return DeviceBuild(
            sources=(native / "graph.cpp", native / "runtime.cpp", native / "library.cpp"),
            include_dirs=(abi_include_dir(),),
        )

    def program_interfaces(self) -> tuple[ProgramInterface, ...]:
        """Return the one interface of C++ programs: they include ``runtime.h`` of this variant."""
        headers = (PACKAGE / "include", abi_include_dir())
        orchestration = OrchestrationBuild(
            include_dirs=headers,
            wrapper=PACKAGE / "include" / "entry_wrapper.hpp",
            flags=("-O2", "-fvisibility=hidden"),
        )
        return (ProgramInterface("template", orchestration, headers),)

    def options(self) -> tuple[Option, ...]:
        """List the settings of this variant; it has none."""
        return ()


plugin = TemplateRuntime()
