"""The backend ``template``: its library, its build recipes, and its settings."""

from pathlib import Path

from pto_core.interfaces import API_VERSION, BuildRecipe, Health, Option, parse

LIBRARY = Path(__file__).with_name("libpto_backend_template.so")


class TemplateBackend:
    """A device of 24 blocks. The thread that waits for the run also runs all cores."""

    name = "template"
    api_version = API_VERSION
    capabilities = frozenset({"callbacks", "planning"})

    def health(self) -> Health:
        """Return whether the backend works here; a real backend also checks for its device."""
        if LIBRARY.is_file():
            return Health(ok=True)
        return Health(
            ok=False,
            reason=f"{LIBRARY} is missing",
            fix="install the folder of this plugin again",
        )

    def library(self) -> Path:
        """Return the path of the native library that exports ``pto_backend_entry``."""
        return LIBRARY

    def build_recipe(self, kind: str) -> BuildRecipe | None:
        """Return the recipe for one kind of code: all runs on the host.

        Kernels are compiled without device attributes. A variant runs as its library is installed.
        """
        if kind in ("aic", "aiv"):
            definitions = ("__CPU_SIM", "__aicore__=", "__gm__=", "__global__=")
            return BuildRecipe(
                flags=("-O2", "-ffp-contract=off", "-Wno-attributes"), definitions=definitions
            )
        return None if kind == "runtime" else BuildRecipe()

    def options(self) -> tuple[Option, ...]:
        """List the settings; ``native`` is the name of an option in the native library."""
        return (
            Option(
                "template.memory_bytes",
                8 * 2**30,
                parse.size_bytes,
                "device memory; only touched pages use host memory",
                native="memory_bytes",
            ),
        )


plugin = TemplateBackend()
