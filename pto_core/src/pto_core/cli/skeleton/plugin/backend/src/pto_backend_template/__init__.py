"""The backend ``template``: its library, how kernels are compiled, and its settings."""

from pathlib import Path

from pto_core.interfaces import API_VERSION, Health, KernelToolchain, Option, parse

LIBRARY = Path(__file__).with_name("libpto_backend_template.so")


class TemplateBackend:
    """A device of 24 blocks whose cores are all the thread that waits for the run."""

    name = "template"
    api_version = API_VERSION
    capabilities = frozenset({"callbacks"})

    def health(self) -> Health:
        """Say whether it works on this machine; a real one looks for its device here."""
        if LIBRARY.is_file():
            return Health(ok=True)
        return Health(
            ok=False,
            reason=f"{LIBRARY} is missing",
            fix="install the folder of this plugin again",
        )

    def library(self) -> Path:
        """Give the native library that exports ``pto_backend_entry``."""
        return LIBRARY

    def kernel_toolchain(self, core_type: str) -> KernelToolchain:
        """Say how a kernel is compiled: for the host, without the words of a device's compiler."""
        return KernelToolchain(
            flags=("-O2", "-Wno-attributes"),
            definitions=("__CPU_SIM", "__aicore__=", "__gm__=", "__global__="),
        )

    def options(self) -> tuple[Option, ...]:
        """List the settings; ``native`` is the name under which the library gets the value."""
        return (
            Option(
                "template.memory_bytes",
                8 * 2**30,
                parse.size_bytes,
                "device memory; only what is touched takes memory of the host",
                native="memory_bytes",
            ),
        )


plugin = TemplateBackend()
